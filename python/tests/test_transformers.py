"""Tests small random Hugging Face models on these kernels: attn_implementation="flashbook" against "sdpa"."""

import functools

import pytest
import torch
from conftest import DEVICE, GPU

pytestmark = pytest.mark.kernels
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers==5.17.*")

import flashbook.transformers


def llama(**options):
    config = transformers.LlamaConfig(vocab_size=100, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=128, **options)
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16)


@pytest.fixture
def calls(monkeypatch):
    """Records the functions of this package that transformers calls, in order."""
    seen = []

    def counted(name):
        function = getattr(flashbook, name)

        @functools.wraps(function)
        def wrapped(*arguments, **options):
            seen.append(name)
            return function(*arguments, **options)

        return wrapped

    for name in ("flash_attn_func", "flash_attn_varlen_func"):
        monkeypatch.setattr(flashbook, name, counted(name))
    monkeypatch.setattr(transformers.modeling_flash_attention_utils, "_loaded_implementation", None)  # transformers caches the functions that it has loaded
    return seen


def with_each(model, run):
    """Returns {implementation: what run() gives}"""
    return {name: (model.set_attn_implementation(name), run())[1] for name in ("sdpa", "flashbook")}


def test_prefill_and_gradients(calls):
    model, tokens = llama(), torch.randint(1, 100, (2, 20), device=DEVICE)

    def run():
        model.zero_grad()
        found = model(tokens, labels=tokens)
        found.loss.backward()
        return found.logits.detach(), model.model.layers[0].self_attn.q_proj.weight.grad.clone()

    found = with_each(model, run)
    assert calls == ["flash_attn_func"] * 2  # once per layer
    torch.testing.assert_close(found["flashbook"][0], found["sdpa"][0], atol=5e-2, rtol=5e-2)
    torch.testing.assert_close(found["flashbook"][1], found["sdpa"][1], atol=5e-2 * found["sdpa"][1].abs().max().item(), rtol=5e-2)


def test_generate(calls):
    """Generates the same tokens, or different ones only if both were nearly equally likely."""
    model, tokens = llama(), torch.randint(1, 100, (2, 20), device=DEVICE)
    new = 8 if GPU else 3
    options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, "output_logits": True,
               "return_dict_in_generate": True}
    found = with_each(model, lambda: model.generate(tokens, **options))
    assert calls == ["flash_attn_func"] * 2 * new  # the prompt, and each token but the last
    ours, theirs = found["flashbook"], found["sdpa"]
    assert ours.sequences.shape == theirs.sequences.shape == (2, 20 + new)
    for row in range(2):
        for step in range(new):
            torch.testing.assert_close(ours.logits[step][row], theirs.logits[step][row], atol=5e-2, rtol=5e-2)
            if ours.sequences[row, 20 + step] != theirs.sequences[row, 20 + step]:
                most = theirs.logits[step][row].topk(2).values
                assert most[0] - most[1] < 5e-2
                break  # the texts differ from here on


def test_padding(calls):
    """Tests padding on the left, which transformers removes by packing the sequences."""
    model, tokens = llama(), torch.randint(1, 100, (2, 20), device=DEVICE)
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    with torch.no_grad():
        found = with_each(model, lambda: model(tokens, attention_mask=mask).logits[0, 3:])
    assert calls == ["flash_attn_varlen_func"] * 2
    torch.testing.assert_close(found["flashbook"], found["sdpa"], atol=5e-2, rtol=5e-2)


def test_windows(calls):
    config = transformers.MistralConfig(vocab_size=100, hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
                                        num_key_value_heads=1, max_position_embeddings=128, sliding_window=6)
    torch.manual_seed(1)
    model = transformers.MistralForCausalLM(config).to(DEVICE, torch.bfloat16)
    tokens = torch.randint(1, 100, (1, 20), device=DEVICE)
    with torch.no_grad():
        found = with_each(model, lambda: model(tokens).logits)
    assert calls == ["flash_attn_func"]
    torch.testing.assert_close(found["flashbook"], found["sdpa"], atol=5e-2, rtol=5e-2)


def test_by_the_name_when_a_model_is_made(calls):
    config = llama().config
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="flashbook", dtype=torch.bfloat16).to(DEVICE)
    with torch.no_grad():
        assert model(torch.ones(1, 9, dtype=torch.int64, device=DEVICE)).logits.isfinite().all()
    assert calls == ["flash_attn_func"] * 2


def test_what_transformers_would_leave_out_is_refused():
    q = torch.randn(1, 2, 5, 64, dtype=torch.bfloat16, device=DEVICE)
    forward = transformers.AttentionInterface()["flashbook"]
    with pytest.raises(NotImplementedError, match="s_aux"):
        forward(torch.nn.Module(), q, q, q, None, s_aux=torch.zeros(2))


def test_a_model_learns_with_dropout(calls):
    model = llama(attention_dropout=0.5).train()
    model.set_attn_implementation("flashbook")
    tokens = torch.randint(1, 100, (1, 9), device=DEVICE)
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        found.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert calls == ["flash_attn_func"] * 6 and found[0].isfinite().all()
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=2e-2)  # dQ is summed in arbitrary order
    assert (found[0] - found[2]).norm() > 0.05 * found[0].norm()
