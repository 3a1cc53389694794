"""Docstrings -> prose."""

from inspect import cleandoc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.readers.sample import inline, paragraphs

NUMPY_STYLE = cleandoc(
    """
    Return the sum of the elements along
    an axis of the array.

    .. versionadded:: 1.2

       This line describes the version and nothing else here.

    Parameters
    ----------
    a : array_like
        The elements to add up, of any
        numeric type.
    axis : int, optional
        The axis along which the sum runs.

    Returns
    -------
    out : ndarray
        An array with the axis removed from it.

    Notes
    -----
    Arithmetic is modular with integer types. Compute like this::

        this is code which nobody should ever read

    No error is raised on overflow [1]_.

    =====  =====================
    kind   what the kind means here
    =====  =====================

    References
    ----------
    .. [1] A. Author, "A very long title of a book", 1999.

    Examples
    --------
    Here is how people add two numbers up:

    >>> np.sum([0.5, 1.5])
    this is what the interpreter would print

    """
)


def test_only_the_prose_of_a_numpy_docstring_stays():
    assert paragraphs(NUMPY_STYLE) == [
        "Return the sum of the elements along an axis of the array.",
        "a: The elements to add up, of any numeric type.",
        "axis: The axis along which the sum runs.",
        "out: An array with the axis removed from it.",
        "Arithmetic is modular with integer types. Compute like this:",
        "No error is raised on overflow.",
    ]


def test_google_arguments_are_entries_of_their_own():
    text = cleandoc(
        """
        Args:
            key (str): The name under which the value is found.
            value: What to store there, which may be None
                or any other object.

        Example:
            This is code that should not be there.
        """
    )
    assert paragraphs(text) == [
        "key: The name under which the value is found.",
        "value: What to store there, which may be None or any other object.",
    ]


def test_fields_and_list_items_are_paragraphs():
    text = "- the first item of the list\n  goes on here\n- the second item of the list\n\n"
    text += ":param name: the name of the file to open\n:returns: an open file that one can read"
    items = ["the first item of the list goes on here", "the second item of the list"]
    assert paragraphs(text) == [*items, "name: the name of the file to open", "an open file that one can read"]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("see ``x_y`` and `z`", "see x_y and z"),
        (":func:`~os.path.join` or :class:`File <io.File>`", "os.path.join or File"),
        ("the `home page <http://a.b>`_ and [that](http://c.d)", "the home page and that"),
        ("**very** *important*, but a * b * c", "very important, but a * b * c"),
        ("as shown [1]_ there", "as shown there"),
    ],
)
def test_markup_is_undone(marked, plain):
    assert inline(marked) == plain


@given(st.text(alphabet="ab .:`*-=>\n_#\\", max_size=200))
def test_any_docstring_gives_lines_without_breaks(docstring):
    for text in paragraphs(docstring):
        assert text == " ".join(text.split())
