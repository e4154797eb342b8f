"""One set of whole files for all attacks."""

import pytest

from tests.hostile.reader import Reader
from tests.hostile.readers import make_readers


@pytest.fixture(scope="session")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    made = make_readers(tmp_path_factory.mktemp("whole"))
    assert len({reader.name for reader in made}) == len(made)
    return {reader.name: reader for reader in made}
