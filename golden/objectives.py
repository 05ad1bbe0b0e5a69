"""Losses and gradients of every objective on the tiny models of golden/hf.py: crates/models/tests/data/objectives/.

    HF_HUB_OFFLINE=1 python golden/objectives.py

The formulas are those of trl (DPOTrainer, ORPOTrainer, GKDTrainer) and sentence-transformers
(MultipleNegativesRankingLoss), written down in plain PyTorch.
"""

import copy
import json
import pathlib

import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data"
NONE, PAD = -100, -101
ROWS, SEQ, VOCAB = 6, 9, 64


def logps(logits, labels, mean=False):
    """trl: log-probabilities of answers, summed or averaged over their tokens."""
    mask = labels >= 0
    safe = labels.clamp(min=0)
    each = torch.gather(logits.log_softmax(-1), 2, safe.unsqueeze(2)).squeeze(2) * mask
    return each.sum(-1) / mask.sum(-1) if mean else each.sum(-1)


def dpo(own, reference, labels, beta=0.1, form="sigmoid", smoothing=0.0):
    mean = form == "ipo"
    c, r = logps(own, labels, mean)[0::2], logps(own, labels, mean)[1::2]
    with torch.no_grad():
        rc, rr = logps(reference, labels, mean)[0::2], logps(reference, labels, mean)[1::2]
    margin = (c - r) - (rc - rr)
    if form == "sigmoid":
        losses = -F.logsigmoid(beta * margin) * (1 - smoothing) - F.logsigmoid(-beta * margin) * smoothing
    elif form == "hinge":
        losses = torch.relu(1 - beta * margin)
    else:
        losses = (margin - 1 / (2 * beta)) ** 2
    return losses.mean()


def orpo(logits, ids, labels, beta):
    means = logps(logits, labels, True)
    c, r = means[0::2], means[1::2]
    log_odds = (c - r) - (torch.log1p(-torch.exp(c)) - torch.log1p(-torch.exp(r)))
    ratio = F.logsigmoid(log_odds)
    # The chosen text, prompt and answer, without what is behind its end.
    after = torch.cat([ids[:, 1:], torch.full((ids.shape[0], 1), NONE)], 1)
    whole = torch.where(labels >= 0, labels, torch.where(labels == PAD, NONE, after))
    nll = F.cross_entropy(logits[0::2].reshape(-1, VOCAB), whole[0::2].reshape(-1), ignore_index=NONE)
    return nll - (beta * ratio).mean()


def jsd(student, teacher, labels, beta, temperature):
    s = F.log_softmax(student / temperature, -1)
    t = F.log_softmax(teacher / temperature, -1)
    if beta == 0:
        each = F.kl_div(s, t, reduction="none", log_target=True)
    elif beta == 1:
        each = F.kl_div(t, s, reduction="none", log_target=True)
    else:
        b = torch.tensor(beta, dtype=s.dtype)
        mixture = torch.logsumexp(torch.stack([s + torch.log(1 - b), t + torch.log(b)]), 0)
        each = b * F.kl_div(mixture, t, reduction="none", log_target=True)
        each = each + (1 - b) * F.kl_div(mixture, s, reduction="none", log_target=True)
    mask = labels >= 0
    return each[mask].sum() / mask.sum()


def contrast(states, labels, scale):
    mask = (labels >= 0).unsqueeze(2)
    mean = (states * mask).sum(1) / mask.sum(1)
    unit = F.normalize(mean, dim=-1)
    scores = scale * unit[0::2] @ unit[1::2].T
    return F.cross_entropy(scores, torch.arange(scores.shape[0]))


def pairs():
    """Prompts of their own lengths, a chosen and a rejected answer behind each, the rest empty."""
    ids, labels = torch.zeros(ROWS, SEQ, dtype=torch.long), torch.full((ROWS, SEQ), PAD)
    for pair, (prompt, lengths) in enumerate([(3, (4, 6)), (2, (7, 2)), (5, (1, 3))]):
        start = torch.randint(1, VOCAB, (prompt,))
        for which, n in enumerate(lengths):
            answer = torch.randint(1, VOCAB, (n,))
            text = torch.cat([start, answer])
            row = 2 * pair + which
            ids[row, : len(text) - 1] = text[:-1]
            labels[row, : prompt - 1] = NONE
            labels[row, prompt - 1 : len(text) - 1] = answer
    return ids, labels


def main():
    torch.manual_seed(3)
    load = lambda name: tf.AutoModelForCausalLM.from_pretrained(DATA / name, dtype=torch.float32, attn_implementation="eager")
    model, teacher = load("llama"), load("mistral")
    reference = copy.deepcopy(model)
    for p in reference.parameters():
        with torch.no_grad():
            p.add_(0.05 * torch.randn_like(p))
    folder = DATA / "objectives"
    (folder / "reference").mkdir(parents=True, exist_ok=True)
    reference.save_pretrained(folder / "reference")
    ids, labels = pairs()
    tokens = torch.randint(0, VOCAB, (ROWS, SEQ + 1))
    stream, after = tokens[:, :-1], tokens[:, 1:].clone()
    after[:, :2] = NONE
    head = (0.02 * torch.randn(3, 32)).requires_grad_()
    classes = torch.full((ROWS, SEQ), NONE)
    for row, (at, label) in enumerate([(8, 0), (3, 2), (5, 1), (7, 1), (2, 0), (8, 2)]):
        classes[row, at] = label
    texts = torch.where(torch.arange(SEQ) < torch.tensor([9, 4, 6, 8, 3, 9]).unsqueeze(1), 1, NONE)
    masked = torch.full((ROWS, SEQ), NONE)
    masked[:, 1::3] = stream[:, 1::3]
    hidden = stream.clone()
    hidden[:, 1::3] = 1

    def both(m, x):
        """Without the causal mask."""
        mask = torch.zeros(x.shape[0], 1, x.shape[1], x.shape[1])
        return m(input_ids=x, attention_mask=mask, use_cache=False).logits

    logits = lambda m, x: m(input_ids=x, use_cache=False).logits
    states = lambda m, x: m.model(input_ids=x, use_cache=False).last_hidden_state
    score = lambda x: F.cross_entropy((states(model, x) @ head.T).reshape(-1, 3), classes.reshape(-1))
    cases = [
        ("dpo,beta=0.1", ids, labels, lambda x, y: dpo(logits(model, x), logits(reference, x), y)),
        ("dpo,beta=0.4,form=hinge", ids, labels, lambda x, y: dpo(logits(model, x), logits(reference, x), y, 0.4, "hinge")),
        ("dpo,beta=0.3,form=ipo", ids, labels, lambda x, y: dpo(logits(model, x), logits(reference, x), y, 0.3, "ipo")),
        ("dpo,beta=0.5,smoothing=0.2", ids, labels,
         lambda x, y: dpo(logits(model, x), logits(reference, x), y, 0.5, smoothing=0.2)),
        ("orpo,beta=0.25", ids, labels, lambda x, y: orpo(logits(model, x), x, y, 0.25)),
        ("distill,beta=0", stream, after, lambda x, y: jsd(logits(model, x), logits(teacher, x).detach(), y, 0, 1)),
        ("distill,beta=1,temperature=2", stream, after,
         lambda x, y: jsd(logits(model, x), logits(teacher, x).detach(), y, 1, 2)),
        ("distill,beta=0.3,temperature=0.7,hard=0.4", stream, after,
         lambda x, y: 0.6 * jsd(logits(model, x), logits(teacher, x).detach(), y, 0.3, 0.7)
         + 0.4 * F.cross_entropy(logits(model, x).reshape(-1, VOCAB), y.reshape(-1))),
        ("classify,classes=3", stream, classes, lambda x, y: score(x)),
        ("mlm,share=0.3", hidden, masked, lambda x, y: F.cross_entropy(both(model, x).reshape(-1, VOCAB), y.reshape(-1))),
        ("contrast,scale=20", stream, texts, lambda x, y: contrast(states(model, x), y, 20)),
    ]
    found, gradients = [], {"head": head.detach().clone()}
    for i, (aim, x, y, f) in enumerate(cases):
        model.zero_grad()
        head.grad = None
        loss = f(x, y)
        loss.backward()
        norm = sum(float(p.grad.double().pow(2).sum()) for p in [*model.parameters(), head] if p.grad is not None) ** 0.5
        found.append(dict(aim=aim, ids=x.flatten().tolist(), labels=y.flatten().tolist(), loss=float(loss), norm=norm))
        for name, p in [*model.named_parameters(), ("score.weight", head)]:
            if p.grad is not None:
                gradients[f"{i}.{name}"] = p.grad.clone()
        print(aim, float(loss), norm)
    (folder / "expected.json").write_text(json.dumps(dict(rows=ROWS, seq=SEQ, cases=found)) + "\n")
    save_file({n: t.contiguous() for n, t in gradients.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
