"""Documents taken from nested token ids."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.preparation.shuffle import nested, take

documents = st.lists(st.lists(st.lists(st.integers(0, 65_535), max_size=4), max_size=4), min_size=1, max_size=8)


@given(documents, st.sampled_from([np.uint16, np.uint32]), st.data())
def test_documents_are_taken_as_arrow_takes_them(
    given_documents: list[list[list[int]]], dtype: type, data: st.DataObject
) -> None:
    sentences = [each for document in given_documents for each in document]
    whole = nested(
        np.array([number for each in sentences for number in each], dtype),
        np.array([len(each) for each in sentences], np.int64),
        np.array([len(document) for document in given_documents], np.int64),
    )
    assert whole.to_pylist() == given_documents
    low = data.draw(st.integers(0, len(given_documents)))
    part = whole.slice(low)  # offsets that do not begin at 0
    order = data.draw(st.lists(st.integers(0, len(part) - 1))) if len(part) else []
    places = np.array(order, np.int64)
    taken = take(part, places)
    taken.validate(full=True)
    assert taken.equals(part.take(pa.array(places)))
