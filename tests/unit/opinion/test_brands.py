"""Brands found by name."""

from typing import Any

from ssop_opinion.core.brands import MAX_FOUND, Brand, BrandIndex, describe

INDEX = BrandIndex(
    [
        Brand("Tessel", ("@tesselhq",), "maker"),
        Brand("Tessel X2", ("X2",)),
        Brand("蓝鲸出行", ("蓝鲸",)),
        Brand("C++ Bar"),
    ]
)


def names(text: str) -> list[str]:
    return [brand.name for brand in INDEX.find(text)]


def test_case_does_not_matter() -> None:
    assert names("my TESSEL broke") == ["Tessel"]


def test_the_longest_name_wins() -> None:
    assert names("the tessel x2 is out") == ["Tessel X2"]


def test_a_latin_name_is_a_whole_word() -> None:
    assert names("Tesselation and X20") == []


def test_a_chinese_name_stands_anywhere() -> None:
    assert names("早上蓝鲸又崩了") == ["蓝鲸出行"]


def test_a_handle_names_its_brand() -> None:
    assert names("thanks @TesselHQ!") == ["Tessel"]


def test_signs_in_a_name_are_taken_as_they_are() -> None:
    assert names("at the C++ bar") == ["C++ Bar"]


def test_brands_come_once_and_in_order() -> None:
    assert names("蓝鲸 X2 蓝鲸出行 x2") == ["蓝鲸出行", "Tessel X2"]


def test_at_most_some_are_found() -> None:
    many = BrandIndex([Brand(f"b{n}") for n in range(10)])
    assert len(many.find(" ".join(f"b{n}" for n in range(10)))) == MAX_FOUND


def test_a_name_of_one_character_is_found() -> None:
    assert [brand.name for brand in BrandIndex([Brand("X")]).find("bad day at x, again")] == ["X"]


def test_the_work_does_not_grow_with_the_number_of_brands() -> None:
    class Counted(str):
        """Counts how often a piece of it is taken."""

        taken = 0

        def lower(self) -> "Counted":
            return self

        def __getitem__(self, key: Any) -> str:
            Counted.taken += 1
            return super().__getitem__(key)

    def count(brands: int) -> int:
        Counted.taken = 0
        BrandIndex([Brand(f"brand{n:04}") for n in range(brands)]).find(Counted("brand " * 500))
        return Counted.taken

    assert count(5_000) == count(1)


def test_no_brands_find_nothing() -> None:
    assert BrandIndex(()).find("anything") == ()


def test_handles_are_names_without_blanks() -> None:
    assert {"tesselhq", "x2", "tessel"} <= INDEX.handles
    assert "tessel x2" not in INDEX.handles


def test_a_note_stands_beside_the_name() -> None:
    assert describe(INDEX.find("tessel")) == ("Tessel (maker)",)
