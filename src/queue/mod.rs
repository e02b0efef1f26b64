//! The rate-limited work queue, generic over its key.
