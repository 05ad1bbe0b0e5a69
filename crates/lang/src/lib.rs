//! The `.module` language.
