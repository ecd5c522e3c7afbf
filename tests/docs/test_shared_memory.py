from tests.docs import shared_memory


def test_the_table_and_the_picture_are_those_of_today():
    """`python -m tests.docs.shared_memory` writes them anew."""
    page = shared_memory.PAGE.read_text()
    assert shared_memory.with_table(page) == page
    assert shared_memory.PICTURE.read_text() == shared_memory.picture()
