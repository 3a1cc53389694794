"""The errors that are the user's to mend; every other exception is a bug and shows its trace."""


class UserError(Exception):
    """Something the user can mend. The message says what is wrong, where, and what to do."""


class ConfigError(UserError):
    """A configuration that cannot work: a bad value, or values that exclude each other."""


class InputError(UserError):
    """An input that is missing, broken, or does not fit another input."""
