"""Clipping, and terms: people find what they wrote, in the language they wrote it in."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.memory.text import clip, terms


class TestClip:
    """Code points, not bytes; one ellipsis behind what is cut."""

    @pytest.mark.parametrize("length", [0, 1, 279, 280])
    def test_a_text_within_the_limit_is_unchanged(self, length: int) -> None:
        assert clip("x" * length, 280) == "x" * length

    def test_a_longer_text_is_cut_to_the_limit_and_gets_one_ellipsis(self) -> None:
        clipped = clip("x" * 281, 280)
        assert clipped == "x" * 280 + "…"
        assert len(clipped) == 281

    def test_the_limit_counts_code_points(self) -> None:
        assert clip("记" * 280, 280) == "记" * 280
        assert clip("😀" * 281, 280) == "😀" * 280 + "…"

    def test_a_clipped_text_is_not_changed_by_a_second_clip(self) -> None:
        once = clip("x" * 400, 280)
        assert clip(once, 280) == once

    @given(st.text(), st.integers(0, 50))
    def test_it_is_a_prefix_and_at_most_one_longer_than_the_limit(
        self, text: str, limit: int
    ) -> None:
        clipped = clip(text, limit)
        assert len(clipped) <= limit + 1
        assert clipped == text if len(text) <= limit else text.startswith(clipped[:-1])


class TestWords:
    """Scripts with spaces."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Billing moves to EU-WEST.", ["billing", "moves", "to", "eu", "west"]),
            ("get_user_by_id", ["get", "user", "by", "id"]),
            ("port 6379, 10.5 GB", ["port", "6379", "10", "5", "gb"]),
            ("Straße STRASSE", ["strasse", "strasse"]),
            ("ＲＥＤＩＳ ﬁne x²", ["redis", "fine", "x2"]),
            ("Café CAFE\u0301", ["café", "café"]),
            ("Αθήνας ΑΘΉΝΑΣ", ["αθήνασ", "αθήνασ"]),
            ("ΐ Ϊ́", ["ΐ", "ΐ"]),
            ("Привет, мир!", ["привет", "мир"]),
            ("हिन्दी में", ["हिन्दी", "में"]),
            ("עִבְרִית شَمْس", ["עִבְרִית", "شَمْس"]),
            ("don't", ["don", "t"]),
        ],
    )
    def test_words_fold_and_keep_their_marks(self, text: str, expected: list[str]) -> None:
        assert terms(text) == expected

    @pytest.mark.parametrize(
        "unseen", ["\u00ad", "\u200b", "\u200d", "\u2060", "\ufeff", "\ufe0f", "\u202e", "\u2066"]
    )
    def test_what_nobody_sees_splits_no_word(self, unseen: str) -> None:
        assert terms(f"mem{unseen}ory") == ["memory"]
        assert terms(f"内{unseen}存é") == terms("内存é")

    @pytest.mark.parametrize("text", ["", " \n\t", "?!…。，", "😀🎉", "___", "\x00\x1b", "\u0301"])
    def test_a_text_without_letters_has_no_terms(self, text: str) -> None:
        assert terms(text) == []

    def test_repeats_are_kept_in_order(self) -> None:
        assert terms("b a b é b") == ["b", "a", "b", "é", "b"]

    def test_half_a_surrogate_pair_is_no_letter(self) -> None:
        assert terms("a\ud800b") == ["a", "b"]


class TestScriptsWithoutSpaces:
    """Every character and every pair of neighbours."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("内", ["内"]),
            ("内存", ["内", "存", "内存"]),
            ("向量库", ["向", "量", "库", "向量", "量库"]),
            ("内存。泄漏", ["内", "存", "内存", "泄", "漏", "泄漏"]),
            ("Redis的内存", ["redis", "的", "内", "存", "的内", "内存"]),
            ("ジョン・スミ", ["ジ", "ョ", "ン", "ジョ", "ョン", "ス", "ミ", "スミ"]),
            ("ﾒﾓﾘ", ["メ", "モ", "リ", "メモ", "モリ"]),
            ("한국", ["한", "국", "한국"]),
            ("ไทย", ["ไ", "ท", "ย", "ไท", "ทย"]),
            ("𠮷野", ["𠮷", "野", "𠮷野"]),
            ("第3章", ["第", "3", "章"]),
        ],
    )
    def test_characters_and_pairs(self, text: str, expected: list[str]) -> None:
        assert terms(text) == expected

    def test_half_width_voiced_kana_are_one_letter(self) -> None:
        assert terms("ｶﾞﾗｽ") == terms("ガラス") == terms("カ\u3099ラス")

    def test_a_variant_of_a_character_is_the_character(self) -> None:
        assert terms("葛\U000e0100飾") == terms("葛飾")

    @given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1))
    def test_any_piece_is_found(self, text: str) -> None:
        found = set(terms(text))
        assert set(text) <= found
        assert {text[at : at + 2] for at in range(len(text) - 1)} <= found


class TestAnyText:
    """What holds whatever stands there."""

    @given(st.text())
    def test_a_term_is_letters_and_digits(self, text: str) -> None:
        for term in terms(text):
            assert term
            assert not any(one.isspace() or one == "_" for one in term)

    @given(st.text(), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
    def test_the_way_accents_are_composed_makes_no_difference(self, text: str, form: str) -> None:
        assert terms(unicodedata.normalize(form, text)) == terms(text)  # type: ignore[arg-type]

    @given(st.text(), st.text())
    def test_texts_side_by_side_have_the_terms_of_both(self, one: str, other: str) -> None:
        assert terms(f"{one} {other}") == terms(one) + terms(other)

    @given(st.text(st.characters(max_codepoint=0x7F)))
    def test_plain_ascii_is_split_as_it_is_next_to_other_text(self, text: str) -> None:
        assert terms(f"{text} é") == [*terms(text), "é"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("a", 1_000_000),
        ("a ", 500_000),
        ("a_", 500_000),
        ("é ", 350_000),
        ("记忆", 170_000),
        ("a中", 250_000),
        ("。", 350_000),
        ("a\u0301", 350_000),
        ("\u0301\u0316", 250_000),
        ("\uff9e\u0316", 200_000),
        ("\u0301\u200d\u0316", 140_000),
        ("\U0001d165\u0316", 160_000),
    ],
)
def test_a_megabyte_of_anything_takes_linear_time(unit: str, times: int) -> None:
    """Marks in alternating order took minutes before their pile was cut."""
    terms("a" + unit * times)
