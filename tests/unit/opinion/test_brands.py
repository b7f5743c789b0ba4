"""Brands found by name."""

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


def test_no_brands_find_nothing() -> None:
    assert BrandIndex(()).find("anything") == ()


def test_handles_are_names_without_blanks() -> None:
    assert {"tesselhq", "x2", "tessel"} <= INDEX.handles
    assert "tessel x2" not in INDEX.handles


def test_a_note_stands_beside_the_name() -> None:
    assert describe(INDEX.find("tessel")) == ("Tessel (maker)",)
