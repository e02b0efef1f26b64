//! The decoders, and the client against registries that answer as they are told.

mod decoders;
