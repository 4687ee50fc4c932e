import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from headstart.data import sources
from headstart.data.sources import Remote, digits
from headstart.errors import UsageError
from tests.data.sources import files
from tests.data.sources.test_images import DIGIT, DIGITS, DIGITS_NPZ, FORMS

GZ = files.idx_files(DIGITS, DIGIT, ".gz")


@pytest.fixture
def published(server, monkeypatch):
    """MNIST as published by the server."""
    server.files.update(GZ)
    downloads = tuple(
        Remote(name, (f"{server.url}{name}",), f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
        for name, data in GZ.items()
    )
    monkeypatch.setattr(digits, "MNIST", replace(digits.MNIST, downloads=downloads))
    return server


def test_what_is_nowhere_is_downloaded_once(published, cache):
    assert sources.locate("mnist") is None
    first = sources.mnist()
    asked = len(published.asked)
    assert asked == 4
    np.testing.assert_array_equal(sources.mnist().x, first.x)
    assert len(published.asked) == asked
    found = sources.locate("mnist")
    assert (found.origin, found.folder) == ("cache", cache / "mnist")


def test_a_corrupt_archive_with_the_right_checksum_is_named(published, monkeypatch):
    name = "t10k-labels-idx1-ubyte.gz"
    published.files[name] = b"published like this"
    wrong = f"sha256:{hashlib.sha256(b'published like this').hexdigest()}"
    downloads = tuple(replace(r, checksum=wrong) if r.name == name else r for r in digits.MNIST.downloads)
    monkeypatch.setattr(digits, "MNIST", replace(digits.MNIST, downloads=downloads))
    with pytest.raises(UsageError, match=rf"(?s){name} cannot be read.*Delete it"):
        sources.mnist()


def test_a_folder_by_argument_comes_first_and_is_the_only_one(published, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path / "environment"))
    files.write(tmp_path / "environment", {"mnist.npz": DIGITS_NPZ})
    assert sources.locate("mnist").origin == "HEADSTART_DATA"
    (tmp_path / "mine").mkdir()
    assert sources.locate("mnist", tmp_path / "mine") is None
    with pytest.raises(UsageError, match=r"(?s)its files are not in .*mine.*mnist.npz.*train-images-idx3-ubyte.gz"):
        sources.mnist(tmp_path / "mine")
    files.write(tmp_path / "mine", GZ)
    assert sources.locate("mnist", str(tmp_path / "mine")).origin == "folder"
    assert published.asked == []


def test_a_folder_by_environment_may_lack_the_files(published, tmp_path, monkeypatch):
    for there in (tmp_path, tmp_path / "not there"):
        monkeypatch.setenv("HEADSTART_DATA", str(there))
        assert len(sources.mnist()) == 27
    assert sources.locate("mnist").origin == "cache"


def test_at_once_is_no_more_than_once(published):
    with ThreadPoolExecutor(4) as pool:
        assert [len(samples) for samples in pool.map(lambda _: sources.mnist(), range(4))] == [27] * 4
    assert len(published.asked) == 4


def test_a_download_of_several_files_goes_on_with_those_that_lack(published, cache):
    files.write(cache / "mnist", {name: data for name, data in GZ.items() if "t10k-labels" not in name})
    sources.mnist()
    assert [path for path, _ in published.asked] == ["t10k-labels-idx1-ubyte.gz"]


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(UsageError, match="There is no such folder"):
        sources.mnist(tmp_path / "not there")
    files.write(tmp_path, {name: data for name, data in GZ.items() if "t10k-labels" not in name})
    with pytest.raises(UsageError, match=r"lacks t10k-labels-idx1-ubyte\.gz"):
        sources.mnist(tmp_path)


def test_a_file_is_no_folder(tmp_path, monkeypatch):
    files.write(tmp_path, {"mnist.npz": DIGITS_NPZ})
    with pytest.raises(UsageError, match=rf"(?s)mnist.npz is a file, but the folder given.*{tmp_path}"):
        sources.mnist(tmp_path / "mnist.npz")
    for variable in ("HEADSTART_DATA", "HEADSTART_CACHE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(tmp_path / "mnist.npz"))
            with pytest.raises(UsageError, match=f"is a file, but .*{variable}"):
                sources.mnist()


def test_offline_says_what_to_put_where(published, cache, monkeypatch):
    monkeypatch.setenv("HEADSTART_OFFLINE", "1")
    with pytest.raises(UsageError) as refusal:
        sources.mnist()
    message = str(refusal.value)
    for part in ("HEADSTART_OFFLINE", str(cache / "mnist"), "mnist.npz", *GZ, f"{published.url}train-images"):
        assert part in message
    assert published.asked == []
    files.write(cache / "mnist", GZ)
    assert len(sources.mnist()) == 27
    monkeypatch.setenv("HEADSTART_OFFLINE", "0")


def test_what_cannot_be_downloaded_says_where_to_get_it():
    with pytest.raises(UsageError, match=r"(?s)shakespeare is in none of .*by hand.*gutenberg.*shakespeare.json"):
        sources.shakespeare()


def test_the_cache_is_in_the_users_home(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADSTART_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sources.cache_folder() == tmp_path / ".cache" / "headstart" / "data"


def test_the_catalogue_is_complete():
    assert list(sources.SOURCES) == ["mnist", "fashion_mnist", "cifar10", "cifar100", "omniglot", "har", "shakespeare"]
    for name, source in sources.SOURCES.items():
        assert source.load is getattr(sources, name)
        assert source.description
        assert "\n" not in source.description
        assert source.citation
        assert source.licence
        assert source.downloads or source.by_hand
        for remote in source.downloads:
            algorithm, digest = remote.checksum.split(":")
            assert (algorithm, len(digest)) == ("sha256", 64)
            assert remote.size > 0
    for name, source in sources.SOURCES.items():
        names = {remote.name for remote in source.downloads}
        assert not names or any(names == set(form.files) for form in source.forms), name
    assert sources.SOURCES["cifar10"].size == 170_052_171
    with pytest.raises(UsageError, match=r"(?s)no source 'mnits'.*'mnist'"):
        sources.locate("mnits")


def test_nothing_is_looked_for_in_other_folders(tmp_path):
    files.write(tmp_path / "deep" / "down", FORMS["mnist"][0])
    assert sources.locate("mnist", tmp_path) is None
