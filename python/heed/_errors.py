"""What heed raises. Each is also the built-in exception that a caller would expect."""

__all__ = ["DeviceError", "Error", "InternalError", "InvalidArgumentError", "OutOfMemoryError", "UnsupportedError"]


class Error(Exception):
    """Every refusal of the library itself. Nothing was written when it is raised."""


class InvalidArgumentError(Error, ValueError):
    """A rule of the contract is broken; the text says what was passed, the rule, and what would work."""


class UnsupportedError(Error, NotImplementedError):
    """It makes sense, but nothing here computes it; the text says what was tried, and why not."""


class OutOfMemoryError(Error, MemoryError):
    """Memory for the workspace could not be had."""


class DeviceError(Error, RuntimeError):
    """A GPU or its driver failed."""


class InternalError(Error, RuntimeError):
    """A defect in heed."""
