//! The custom resources as types; their CRDs are generated from them.
