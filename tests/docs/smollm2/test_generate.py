"""The graphs answer as the reference does: a small model in the emulator, the real one on a GPU."""

import numpy as np
import pytest
from smollm2 import generate
from smollm2.generate import Generator
from smollm2.memory import batch_memory, contents
from smollm2.model import BUCKETS, batch_graph
from smollm2.weights import Config, random_weights

import graphdsl as gd

from . import held
from .models import SEED, TINY
from .reference import Chat, Reference, greedy

PROMPT = [5, 77, 200, 31, 8, 19, 4, 3, 99, 100, 101]


@pytest.fixture(scope="module")
def small():
    """A model of two layers in the emulator, with prompts by eight tokens at a time, the last of which have no room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "BUCKETS", (8,))
        weights = random_weights(TINY, SEED)
        with Generator(weights, gd.emulator(), context=15) as generator:
            (wanted,) = greedy(Reference(weights), [PROMPT], 4)
            held.poison(generator, 8)
            generator.process(PROMPT[:8], 8)
            exe = generator.process(PROMPT[8:], 8, padding=319)
            behind = exe["logits"].copy_to_host(), int(exe["tokens"][11])
            yield generator, wanted, behind


def test_a_prompt_in_two_parts_with_poisoned_padding_is_answered_as_by_the_reference(small):
    generator, wanted, (logits, token) = small
    np.testing.assert_allclose(logits, wanted.logits[0], atol=held.TOLERANCE * np.abs(wanted.logits[0]).max())
    assert token == wanted.tokens[0]
    assert generator.position == 11


def test_the_steps_that_follow_take_the_tokens_of_the_reference(small):
    generator, wanted, _ = small
    generator.go_back(11, wanted.tokens[0])
    answer = generator.answer(3)
    assert [next(answer), next(answer)] == wanted.tokens[1:3]
    answer.close()
    assert generator.position == 13
    with pytest.raises(gd.GraphdslError, match="ran ahead"):  # the third step has been launched with the others
        next(generator.answer(1))
    # A temperature that tells nothing apart from the largest: the graph that samples, on the same memory.
    generator.go_back(13, wanted.tokens[2])
    generator.sampling(temperature=1e-6, top_k=5, seed=2**63)
    assert list(generator.answer(1)) == wanted.tokens[3:]
    logits = generator.step["logits"].copy_to_host()
    np.testing.assert_allclose(logits, wanted.logits[3], atol=held.TOLERANCE * np.abs(wanted.logits[3]).max())


def test_a_prompt_that_is_too_long_is_refused(small):
    generator, _, _ = small
    generator.go_back(11, 0)
    for tokens, remedy in ((range(5), "--context"), ([], "Say something")):
        with pytest.raises(gd.GraphdslError, match="1 to 4 tokens") as caught:
            generator.prompt(tokens)
        assert remedy in caught.value.remedy


@pytest.mark.parametrize("kind", ["bf16", "q4_1"])
def test_a_large_model_answers_as_the_reference(kind):
    shape = {"hidden": 128, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 64, "mlp": 128, "vocabulary": 64}
    weights = random_weights(Config(**shape, weights=kind, large=True), 1)
    (wanted,) = greedy(Reference(weights), [[5]], 1)
    with Generator(weights, gd.emulator(), context=8) as generator:
        generator.go_back(0, 5)
        assert list(generator.answer(1)) == wanted.tokens


def test_a_batch_answers_as_the_reference_each_conversation_at_its_position():
    shape = {"hidden": 128, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 64, "mlp": 128, "vocabulary": 64}
    config = Config(**shape, weights="bf16", large=True)
    weights = random_weights(config, 1)
    before = [[5], [9, 3], [60], [11, 12, 13], [1], [2], [3], [4]]
    reference, chats = Reference(weights), [Chat(config) for _ in before]
    for i in (1, 3):
        reference.logits([chats[i]], [before[i][:-1]])
    device = gd.emulator()
    memory = batch_memory(device, config, len(chats), 4)
    for name, array in contents(weights, 4).items():
        if name in memory and memory[name].shape == array.shape:
            memory[name].copy_from_host(array)
    for name in ("keys", "values"):  # what the reference has of the tokens before the last one
        cache = np.full((len(chats), 4, config.kv_rows), np.nan, np.float16)
        for i, chat in enumerate(chats):
            cache[i, : chat.length] = getattr(chat, name)[0].reshape(chat.length, config.kv_rows)
        memory[f"layer0/{name}"].copy_from_host(cache.reshape(-1))
    memory["position"].copy_from_host(np.array([chat.length for chat in chats], np.int32))
    memory["token"].copy_from_host(np.array([tokens[-1] for tokens in before], np.int32))
    wanted = reference.logits(chats, [tokens[-1:] for tokens in before]).argmax(axis=1)
    with batch_graph(config, len(chats), 4, memory=memory).instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        assert [exe["tokens"][i, len(tokens)] for i, tokens in enumerate(before)] == wanted.tolist()
        assert memory["position"].copy_to_host().tolist() == list(map(len, before))


@pytest.fixture(scope="module")
def on_gpu(real):
    with Generator(real, gd.cuda()) as generator:
        yield generator


@pytest.mark.gpu
def test_eight_prompts_are_answered_as_by_the_reference(real, real_tokenizer, on_gpu):
    prompts = held.conversations(real_tokenizer)
    found = held.answers(on_gpu, prompts, greedy(Reference(real), prompts, held.STEPS))
    assert len({answer.prompt for answer in found}) == 8
    for answer in found:
        print(answer)
        assert len(answer.tokens) == held.STEPS
        assert not answer.wrong, answer
        assert answer.error < held.TOLERANCE, answer
    assert sum(len(answer.near_ties) for answer in found) <= held.NEAR_TIES * len(found) * held.STEPS


@pytest.mark.gpu
def test_padding_changes_nothing(real_tokenizer, on_gpu):
    for padded in held.paddings(on_gpu, held.conversations(real_tokenizer)[-1], BUCKETS):
        assert padded.right, padded


@pytest.mark.gpu
def test_stream_launches_give_the_same_tokens(real, real_tokenizer, on_gpu):
    prompt = real_tokenizer.chat([("user", "Count from one to ten.")])
    on_gpu.go_back(0, 0)
    tokens = [on_gpu.prompt(prompt), *on_gpu.answer(31)]
    with Generator(real, gd.cuda(), graphs=False) as one_by_one:
        assert [one_by_one.prompt(prompt), *one_by_one.answer(31)] == tokens
