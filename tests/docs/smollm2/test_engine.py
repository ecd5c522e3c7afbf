"""The engine in the emulator: whoever comes and goes, each is answered as if it were alone.

The model is a toy (see `toy`); its state, pages and launches are those of the real one.
"""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smollm2 import load, many, serve_bench, soak
from smollm2.engine import Engine
from smollm2.engine_graphs import RING
from smollm2.launches import Launches
from smollm2.scheduler import Busy

import graphdsl as gd

from . import toy

ROOM = toy.ROOM
MOST = (ROOM.pages - 1) * ROOM.page_size


class Late(Launches):
    """Launches run as late as they may: when somebody asks for what they made, or waits for all of them."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.late = []

    def _run(self, run, built):
        self.late.append(built.exe)

    def landed(self, flight):
        while any(flight.tokens == -2):
            self.late.pop(0).launch()
        return super().landed(flight)

    def synchronize(self):
        while self.late:
            self.late.pop(0).launch()
        super().synchronize()

    def swap(self, weights):
        self.synchronize()  # those in flight have the old ones, as on a GPU
        super().swap(weights)


@pytest.fixture(scope="module")
def device():
    return gd.emulator()


@pytest.fixture(scope="module")
def served(device):
    """Memory, and launches on it, which the engines of all tests take over from each other."""
    memory = toy.state(device)
    graphs = {"step_graph": toy.step_graph, "prompt_graph": toy.prompt_graph}
    launches = Late(toy.Config(), ROOM, device, toy.weights(device), memory, batches=(2, 4), prompts=(4,), **graphs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "close", launches.synchronize)
        yield memory, launches
    launches.close()


@pytest.fixture
def engine(served):
    memory, launches = served
    with Engine(launches, waiting=6) as engine:
        yield engine
        while engine._open:
            engine.cancel(next(iter(engine._open)))
        engine.run()
    assert_nothing_is_held(engine, memory)


def assert_nothing_is_held(engine, memory):
    assert engine.scheduler.free == (ROOM.slots, ROOM.pages - 1)
    free = memory["free_count"].copy_to_host()[0]
    assert free == ROOM.pages - 1
    assert sorted(memory["free_pages"].copy_to_host()[:free]) == list(range(1, ROOM.pages))


prompts = st.lists(st.integers(0, toy.VOCABULARY - 1), min_size=1, max_size=8)
asked = st.tuples(st.just("submit"), prompts, st.integers(1, 8), st.none() | st.integers(0, 7))
actions = st.lists(
    asked
    | st.tuples(st.just("turn"), st.integers(1, 3))
    | st.tuples(st.just("cancel"), st.integers(0, 30))
    | st.tuples(st.just("swap")),
    min_size=6,
    max_size=16,
)


@settings(max_examples=5, deadline=None)
@given(actions)
def test_each_is_answered_as_if_it_were_alone(served, device, actions):
    memory, launches = served
    answers, cancelled = [], {}
    with Engine(launches, waiting=100) as engine:
        for action, *details in actions:
            if action == "submit":
                prompt, most, place = details
                # A token of the answer: most of those that stop do so before their length is reached.
                stop = None if place is None else toy.answer(prompt, most)[place % most]
                answers.append((engine.submit(prompt, most, stop=stop), stop))
            elif action == "turn":
                for _ in range(details[0]):
                    engine.turn()
            elif action == "cancel" and answers:
                answer = answers[details[0] % len(answers)][0]
                if not answer.ending:
                    cancelled[answer] = len(answer.tokens)
                engine.cancel(answer)
            elif action == "swap":
                before = launches.weights
                engine.swap(toy.weights(device))
                launches.synchronize()
                before["weight"].copy_from_host([99])
        engine.run()
        assert_nothing_is_held(engine, memory)
    for answer, stop in answers:
        wanted = toy.answer(answer.prompt, answer.most, stop=stop)
        assert answer.tokens == wanted[: cancelled.get(answer)]
        assert (answer.ending == "cancelled") == (answer in cancelled)
        assert answer in cancelled or answer.ending == ("stop" if wanted[-1] == stop else "length")
        assert answer.times == sorted(answer.times)
    order = [answer.admitted for answer, _ in answers if answer.admitted == answer.admitted]
    assert order == sorted(order)


def test_a_slot_is_in_a_step_once_and_rows_of_padding_have_the_scrap_slot(served, engine):
    answers = [engine.submit([i], 3) for i in range(3)]
    engine.turn()
    step, _ = engine._flights[-1]
    row = step.built.arrays["slots"][(served[1]._count - 1) % RING].tolist()
    assert row == [*(answer.slot for answer in answers), ROOM.scrap_slot]
    assert len({*row}) == 4


def test_a_cancel_leaves_the_slot_alone_that_another_has_taken_over(engine):
    """The last tokens of some are in flight, and a slot of theirs is somebody else's, when they are cancelled."""
    first = [engine.submit([i], 3) for i in range(4)]
    other = engine.submit([50], 6)
    engine.turn()
    engine.turn()
    assert other.slot in [answer.slot for answer in first if not answer.ending]
    for answer in first:
        engine.cancel(answer)
    engine.run()
    assert other.tokens == toy.answer([50], 6)


def test_those_that_find_no_page_wait_and_nobody_overtakes(engine):
    """A long one in front waits for pages, and a short one behind it, for which there were some, waits too."""
    first = engine.submit(range(10), 6)
    long, short = engine.submit(range(8), 8), engine.submit([1], 1)
    while first.launched < first.most:
        engine.turn()
        assert engine.scheduler.waiting == 2
    engine.run()
    assert first.times[-1] < long.times[0] < short.times[0]
    assert long.admitted < short.admitted
    for answer in (first, long, short):
        assert answer.tokens == toy.answer(answer.prompt, answer.most)


def test_what_never_fits_is_refused_with_the_rule_and_the_remedy(engine):
    with pytest.raises(gd.GraphdslError, match="1 to 16 tokens: a context of 16, and 11 pages of 2") as caught:
        engine.submit(range(10), 7)
    assert caught.value.value == 17
    assert "ask for fewer tokens" in caught.value.remedy
    for prompt, most, field in (([], 3, "prompt"), ([1], 0, "most")):
        with pytest.raises(gd.GraphdslError, match="at least") as caught:
            engine.submit(prompt, most)
        assert caught.value.field == field


def test_too_many_that_wait_are_pushed_back_until_some_are_admitted(engine):
    for _ in range(6):
        engine.submit([1, 2], 3)
    with pytest.raises(Busy, match="at most 6 requests wait"):
        engine.submit([1, 2], 3)
    engine.turn()
    assert engine.submit([1, 2], 3) in engine.scheduler
    engine.run()


def test_tokens_are_streamed_to_threads_that_drive_it_together(engine):
    asks = [([i, i + 1], 7) for i in range(4)]
    answers = [engine.submit(*ask) for ask in asks]
    heard = [[] for _ in answers]
    threads = [
        threading.Thread(target=lambda i=i: heard[i].extend(engine.stream(answers[i]))) for i in range(len(answers))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert heard == [toy.answer(*ask) for ask in asks]


def test_the_first_token_is_streamed_before_the_last_is_launched(engine):
    answer = engine.submit([3], 12)
    following = engine.stream(answer)
    assert next(following) == toy.answer([3], 1)[0]
    assert answer.launched <= 1 + engine.ahead
    engine.cancel(answer)
    assert list(following) == answer.tokens[1:]
    assert answer.ending == "cancelled"


def test_launches_run_ahead_when_somebody_joins(engine):
    engine.submit([3], 9)
    engine.turn()
    assert [flight.built.is_step for flight, _ in engine._flights] == [True] * engine.ahead
    joins = engine.submit([4], 9)
    engine.turn()
    assert [flight.built.is_step for flight, _ in engine._flights] == [True] * (engine.ahead - 1) + [False]
    assert joins.launched == 1


def test_those_who_are_served_wait_for_few_prompts_at_a_time(served, engine):
    """A prompt of three parts, and three more prompts, are launched between steps, two at a time."""
    engine.prompts = 2
    engine.submit([1], 9)
    engine.turn()
    answers = [engine.submit(range(10), 2), *(engine.submit([i], 2) for i in range(3))]
    kinds = []
    while engine.busy:
        before = len(engine._flights)
        engine.turn()
        kinds += [flight.built.is_step for flight, _ in [*engine._flights][before - 1 :]]
    between = "".join("s" if step else "p" for step in kinds).strip("s").split("s")
    assert max(map(len, between)) == 2
    assert sum(map(len, between)) == 6
    for answer in answers:
        assert answer.tokens == toy.answer(answer.prompt, 2)


def test_a_swap_in_the_middle_lets_launches_in_flight_end_with_the_old_weights(engine, device):
    answer = engine.submit([7, 8], 8)
    engine.turn()
    ahead = answer.launched
    assert ahead > len(answer.tokens)
    engine.swap(toy.weights(device, 50))
    engine.run()
    old = toy.answer([7, 8], ahead)
    assert answer.tokens == old + toy.answer([7, 8, *old], 8 - ahead, weight=50)
    engine.swap(toy.weights(device))


def test_pages_that_were_not_counted_are_found_out(served, engine):
    """If somebody takes more pages than there are, that is said, and no token is made up."""
    engine.scheduler._free_pages = 100
    for i in range(3):
        engine.submit([i, 2], 14)
    with pytest.raises(gd.GraphdslError, match="pages that were counted") as caught:
        engine.run()
    assert caught.value.field == "state"
    engine.scheduler._free_pages -= 100 - (ROOM.pages - 1)


def test_a_closed_engine_ends_its_answers_and_takes_no_more(served):
    engine = Engine(served[1])
    answers = [engine.submit([1, 2], 9) for _ in range(6)]
    engine.turn()
    for answer in answers[:4]:
        engine.cancel(answer)
    engine.close()
    engine.close()
    assert [answer.ending for answer in answers] == ["cancelled"] * 4 + ["closed"] * 2
    assert list(engine.stream(answers[0])) == answers[0].tokens
    for call in (engine.turn, lambda: engine.submit([1], 1)):
        with pytest.raises(gd.GraphdslError, match="closed"):
            call()


class Clock:
    """Time that passes when it is asked for, and while somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-4
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_a_trace_is_replayed_and_measured(served, device):
    memory, launches = served
    clock = Clock()
    trace = [load.Arrival(at, prompt, answer) for at, prompt, answer in ((0.5, 3, 4), (1.0, 2, 1), (400.0, 8, 8))]
    with Engine(launches, clock=clock) as engine:
        found = load.replay(engine, trace, 100.0, clock=clock, sleep=clock.sleep)
        assert_nothing_is_held(engine, memory)
    assert (found["requests"], found["tokens"], found["rate"]) == (3, 13, 100.0)
    assert found["seconds"] == pytest.approx(4.0, rel=0.05)  # the last arrives behind 400 gaps of 10 ms
    assert found["tokens_s"] == pytest.approx(13 / found["seconds"])
    assert 0 < found["queue"]["p50"] < found["first"]["p50"] < 100
    assert 0 < found["token"]["p50"] <= found["token"]["p99"] < 100


def test_a_long_run_compares_every_answer_and_finds_a_wrong_one(served, device):
    memory, launches = served
    prompts = soak.prompts_of(toy.VOCABULARY, count=4, longest=6)
    with Engine(launches) as engine:
        expected = soak.alone(engine, prompts, 8)
        assert expected == [toy.answer(prompt, 8) for prompt in prompts]
        blocks = soak.Blocks(device, launches.weights, toy.weights(device))
        record = soak.soak(engine, prompts, expected, blocks, steps=30, swap_every=10)
        assert not record.wrong_answers
        assert (record.swaps, len(record.swap_ms)) == (3, 2)
        assert record.steps >= 30
        assert sum(record.batches.values()) == record.steps
        assert record.requests > 3
        assert record.tokens > record.requests
        assert record.growth[0] <= 0
        # The same with weights that are not the same.
        engine.swap(toy.weights(device, 6))
        spoiled = soak.soak(engine, prompts, expected, blocks, steps=10, swap_every=100)
        assert spoiled.wrong_answers
        assert spoiled.wrong[0]["tokens"] != spoiled.wrong[0]["wanted"]
        blocks.close()
        engine.swap(toy.weights(device))
        assert_nothing_is_held(engine, memory)


def test_the_bench_measures_requests_that_run_together(served, monkeypatch):
    monkeypatch.setattr(serve_bench, "PROMPT", 1)
    monkeypatch.setattr(serve_bench, "_RAW", 1)
    memory, launches = served
    with Engine(launches) as engine:
        found = serve_bench.batch(engine, 2, 3, 1)
        assert_nothing_is_held(engine, memory)
    assert found["tokens_s"] > 0
    assert 0 < found["token"]["p50"] <= found["token"]["p99"]
    assert found["step"] > 0


def test_its_cache_counts_what_the_engine_launches(served, monkeypatch):
    memory, launches = served
    for name in ("_run", "landed"):  # launches go at once
        monkeypatch.setattr(launches, name, getattr(Launches, name).__get__(launches))
    monkeypatch.setattr(launches.cache, "observer", gd.Metrics(every=2, interval=0))
    with Engine(launches) as engine:
        for i in range(3):
            engine.submit([i], 3)
        engine.run()
        assert_nothing_is_held(engine, memory)
    found = serve_bench.stats(engine)
    buckets = {bucket["name"]: bucket for bucket in found["buckets"]}
    counted = {name: bucket["launch"]["count"] for name, bucket in buckets.items()}
    steps = counted.get("rows=2", 0) + counted.get("rows=4", 0)
    assert (steps, counted["rows=8"]) == (engine.counts["steps"], engine.counts["prompts"])
    for bucket in buckets.values():
        assert bucket["requests"] == bucket["launch"]["count"] == bucket["queue"]["count"]
        assert bucket["gpu"]["count"] == bucket["requests"] // 2
        assert bucket["nodes"] > 0
    rows = sum(size * count for size, count in engine.batches.items())
    filled = sum(int(name[5:]) * counted[name] * (1 - buckets[name]["padding"]) for name in counted if name != "rows=8")
    assert filled == pytest.approx(rows)


def test_many_prompts_are_answered_each_to_its_stop(engine):
    prompts = [[i, 2 * i] for i in range(9)]
    wanted = [toy.answer(prompt, 6) for prompt in prompts]
    stops = {wanted[2][1], wanted[5][3]}  # one of them is looked for by the device, and the other here
    found = dict(many.answers(engine, prompts, 6, stops))
    for i, prompt in enumerate(prompts):
        ends = [place for place, token in enumerate(wanted[i]) if token in stops]
        assert found[i].prompt == tuple(prompt)
        assert found[i].tokens == wanted[i][: ends[0] + 1 if ends else 6]
