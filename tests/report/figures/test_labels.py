"""Names beside points: no two on each other, none outside, the first ones first."""

from hypothesis import given
from hypothesis import strategies as st

from favor.report.figures.labels import Placed, Spot, label_box, place_labels

WIDTH, HEIGHT = 400, 300

spots = st.lists(
    st.builds(
        Spot,
        x=st.floats(0, WIDTH),
        y=st.floats(0, HEIGHT),
        text=st.sampled_from(["", "vit_s16", "efficientformerv2_s0", "x"]),
        soft=st.booleans(),
    ),
    max_size=25,
)


def boxes(placed: list[Placed], of: list[Spot]) -> list[tuple[float, float, float, float]]:
    return [label_box(of[place.index], place.dx, place.dy, place.align) for place in placed]


@given(spots, st.sampled_from([-1, 1]))
def test_no_two_names_meet_and_all_are_inside(of: list[Spot], outwards: int) -> None:
    found = boxes(place_labels(of, WIDTH, HEIGHT, outwards=outwards), of)  # type: ignore[arg-type]
    for left, top, right, bottom in found:
        assert left >= 0
        assert top >= 0
        assert right <= WIDTH
        assert bottom <= HEIGHT
    for i, a in enumerate(found):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in found[i + 1 :])


@given(spots)
def test_only_spots_with_a_text_are_named_and_each_once(of: list[Spot]) -> None:
    indices = [place.index for place in place_labels(of, WIDTH, HEIGHT)]
    assert len(set(indices)) == len(indices)
    assert all(of[index].text for index in indices)


def test_a_name_without_room_is_left_out() -> None:
    crowd = [Spot(200, 150, "a_rather_long_name") for _ in range(12)]
    placed = place_labels(crowd, WIDTH, HEIGHT)
    assert 0 < len(placed) < len(crowd)
    assert placed[0].index == 0


def test_a_name_keeps_off_a_line() -> None:
    line = [Spot(200.0 + step, 143, soft=True) for step in range(0, 80, 4)]
    free = place_labels([Spot(200, 150, "vit_s16")], WIDTH, HEIGHT)[0]
    beside = place_labels([Spot(200, 150, "vit_s16"), *line], WIDTH, HEIGHT)[0]
    assert (free.dx, free.dy) != (beside.dx, beside.dy)


def test_a_name_over_a_crowd_of_points_is_left_out() -> None:
    crowd = [Spot(x, y) for x in range(120, 290, 6) for y in range(100, 200, 6)]
    assert place_labels([Spot(200, 150, "vit_s16"), *crowd], WIDTH, HEIGHT) == []
