"""Small random models of transformers: logits against eager attention, and generate()."""

import pytest
from conftest import devices

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import heed  # noqa: E402
import heed.integrations.transformers as integration  # noqa: E402

pytestmark = [pytest.mark.parametrize("device", devices()), pytest.mark.filterwarnings("ignore")]
TOKENS = 97
SMALL = {
    "vocab_size": TOKENS,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
MODELS = {
    "Llama": ("Llama", {}),
    "Mistral (window)": ("Mistral", {"sliding_window": 7}),
    "Gemma-2 (soft cap)": (
        "Gemma2",
        {"head_dim": 16, "sliding_window": 9, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    ),
    "gpt-oss (sinks)": (
        "GptOss",
        {"head_dim": 16, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    transformers.logging.set_verbosity_error()
    integration.register()


def model_of(name, device, dtype=torch.float32):
    family, options = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(**SMALL, **options)
    model = getattr(transformers, family + "ForCausalLM")(config).to(device, dtype).eval()
    # Random weights are small: without larger ones attention would hardly show in the logits.
    for key, parameter in model.named_parameters():
        if "sinks" in key or "q_proj" in key or "k_proj" in key:
            torch.nn.init.normal_(parameter, std=1.0 if "sinks" in key else 0.3)
    return model


def logits(model, how, *arguments, **options):
    model.set_attn_implementation(how)
    with torch.no_grad():
        return model(*arguments, **options).logits


def tokens(device, *shape):
    return torch.randint(3, TOKENS, shape, generator=torch.Generator().manual_seed(5)).to(device)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_logits_are_those_of_eager_attention(device, name, padded):
    model, ids = model_of(name, device), tokens(device, 2, 23)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :5] = 0
    expected = logits(model, "eager", ids, attention_mask=mask)
    got = logits(model, "heed", ids, attention_mask=mask)
    keep = mask.bool()
    torch.testing.assert_close(got[keep], expected[keep], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_attention_matters_in_this_test(device, name):
    """The same comparison notices a feature that is left out: the scores are halved."""
    model, ids = model_of(name, device), tokens(device, 2, 23)
    expected = logits(model, "eager", ids)
    for layer in model.model.layers:
        layer.self_attn.scaling /= 2
    assert (logits(model, "heed", ids) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_the_same_text_is_generated(device, name):
    model, ids = model_of(name, device), tokens(device, 2, 11)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    made = {}
    for how in ("eager", "heed"):
        model.set_attn_implementation(how)
        made[how] = model.generate(
            ids, attention_mask=mask, max_new_tokens=16, do_sample=False, pad_token_id=0, eos_token_id=None
        )
    assert made["heed"].shape == (2, 27)
    assert torch.equal(made["heed"], made["eager"])


def test_half_precision_is_as_close_as_sdpa_is(device):
    exact = model_of("Llama", device).double()
    ids = tokens(device, 2, 40)
    expected = logits(exact, "eager", ids)
    model = model_of("Llama", device, torch.bfloat16)
    error = {how: (logits(model, how, ids) - expected).abs().max().item() for how in ("sdpa", "heed")}
    assert error["heed"] <= 2 * error["sdpa"] + 1e-3


def test_what_heed_cannot_give_is_refused(device):
    model = model_of("Llama", device)
    q = torch.zeros(1, 4, 5, 16, device=device)
    layer = model.model.layers[0].self_attn
    with torch.no_grad():
        with pytest.raises(heed.UnsupportedError, match="output_attentions"):
            integration.heed_attention_forward(layer, q, q, q, None, output_attentions=True)
        with pytest.raises(heed.UnsupportedError, match="head_mask"):
            integration.heed_attention_forward(layer, q, q, q, None, head_mask=q)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_training_has_the_gradients_of_eager_attention(device, name):
    ids, found = tokens(device, 2, 23), {}
    for how in ("eager", "heed"):
        model = model_of(name, device)
        model.set_attn_implementation(how)
        try:
            model(ids, labels=ids).loss.backward()
        except heed.UnsupportedError as refusal:
            pytest.skip(f"no backward pass here: {str(refusal).splitlines()[0]}")
        found[how] = {key: each.grad for key, each in model.named_parameters() if each.grad is not None}
    assert found["heed"].keys() == found["eager"].keys()
    for key, want in found["eager"].items():
        torch.testing.assert_close(
            found["heed"][key], want, rtol=2e-3, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_autocast(device, name, compiled):
    """Rotary embeddings make queries and keys float32 again, and values are in autocast's type: as close as sdpa or eager is."""
    if compiled and name != "Llama":
        pytest.skip("one model is enough for the compiler")
    ids, found = tokens(device, 2, 23), {}
    other = "eager" if name in ("Gemma-2 (soft cap)", "gpt-oss (sinks)") else "sdpa"
    for how in ("exact", other, "heed"):
        model = model_of(name, device)
        model.set_attn_implementation("eager" if how == "exact" else how)
        step = torch.compile(model, backend="aot_eager") if compiled and how == "heed" else model
        with torch.autocast(device, torch.bfloat16, enabled=how != "exact"):
            result = step(ids, labels=ids, use_cache=False)  # a cache would make values float32, too
        result.loss.backward()
        weights = model.model.layers[0].self_attn.q_proj.weight
        found[how] = result.logits.float().detach(), weights.grad
    for ours, theirs, exact in zip(found["heed"], found[other], found["exact"]):
        assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 1e-3


DOCUMENTS = (0, 6, 7, 23)


def packed(device):
    """What DataCollatorWithFlattening makes of documents."""
    ids = tokens(device, 1, DOCUMENTS[-1])
    parts = list(zip(DOCUMENTS, DOCUMENTS[1:]))
    places = torch.cat([torch.arange(end - begin) for begin, end in parts])[None].to(device)
    starts = torch.tensor(DOCUMENTS, dtype=torch.int32, device=device)
    longest = max(end - begin for begin, end in parts)
    told = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest, "max_length_k": longest}
    return ids, {"position_ids": places, **told}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("use_cache", [True, False])  # with a cache transformers makes no mask of packed documents
def test_packed_documents_do_not_see_each_other(device, name, use_cache):
    model = model_of(name, device)
    ids, told = packed(device)
    got = logits(model, "heed", ids, use_cache=use_cache, **told)
    for begin, end in zip(DOCUMENTS, DOCUMENTS[1:]):
        alone = logits(model, "eager", ids[:, begin:end])
        torch.testing.assert_close(got[:, begin:end], alone, rtol=2e-4, atol=2e-5)


def test_packed_documents_have_the_gradients_of_each(device):
    ids, told = packed(device)
    found = []
    for how in ("eager", "heed"):
        model = model_of("Llama", device)
        model.set_attn_implementation(how)
        if how == "heed":
            model(ids, **told).logits.square().sum().backward()
        else:
            for begin, end in zip(DOCUMENTS, DOCUMENTS[1:]):
                model(ids[:, begin:end]).logits.square().sum().backward()
        found.append(model.model.layers[0].self_attn.k_proj.weight.grad)
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=2e-4)


def test_packed_documents_that_heed_cannot_tell_apart_are_refused(device):
    layer = model_of("Llama", device).model.layers[0].self_attn
    q = torch.zeros(2, 4, 5, 16, device=device)
    starts = torch.tensor([0, 2, 5], dtype=torch.int32, device=device)
    both = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}
    call = lambda q, mask, **told: integration.heed_attention_forward(layer, q, q, q, mask, **told)
    with pytest.raises(heed.UnsupportedError, match="batch of 2"):
        call(q, None, **both)
    with pytest.raises(heed.UnsupportedError, match="need both"):
        call(q[:1], None, cu_seq_lens_q=starts)
    with pytest.raises(heed.UnsupportedError, match="mask of numbers"):
        call(q[:1], torch.zeros(5, 5, device=device), **both)
    with pytest.raises(heed.UnsupportedError, match="position_bias"):
        call(q[:1], None, position_bias=torch.zeros(4, 5, 5, device=device), **both)
    o, _ = call(q[:1], None, max_length_q=4096, max_length_k=4096, **both)
    assert o.shape == (1, 5, 4, 16)


def test_models_that_give_more_than_logits(device):
    ids = tokens(device, 2, 11)
    asked = {"Llama": {"output_hidden_states": True}, "gpt-oss (sinks)": {"output_router_logits": True}}
    for name, options in asked.items():
        model = model_of(name, device)
        model.set_attn_implementation("heed")
        with torch.no_grad():
            given = model(ids, **options)
        assert len(given.hidden_states if name == "Llama" else given.router_logits) >= 2


def test_gradients_with_the_same_bits_may_be_asked_for(device, monkeypatch):
    told, run = [], heed._native.backward
    monkeypatch.setattr(heed._native, "backward", lambda *given: (told.append(given[1]["deterministic"]), run(*given))[1])
    layer = model_of("Llama", device).model.layers[0].self_attn
    q = torch.zeros(1, 4, 5, 16, device=device, requires_grad=True)
    for deterministic in (None, False, True):
        integration.heed_attention_forward(layer, q, q, q, None, deterministic=deterministic)[0].sum().backward()
    assert told == [0, 0, 1]
