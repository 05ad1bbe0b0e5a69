"""Errors, by the names of JAX: all are `TracerError`."""

from ._tensorloom import TracerError

ConcretizationTypeError = TracerArrayConversionError = TracerBoolConversionError = TracerIntegerConversionError = UnexpectedTracerError = TracerError
