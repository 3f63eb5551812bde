#!/usr/bin/env bash
# GuideLLM's Poisson profile is no Poisson process by default: its ten processes draw the same gaps from one seed.
#
# Seen on 2026-11-29 with guidellm 0.8.1, Python 3.11: with `--profile kind=poisson,rate=5`, each worker process draws
# its gaps from a generator of its own with the same seed, and adds them to a time that all share. So each gap is used
# once per process before the next one follows: the 29 gaps between the targeted starts of 30 requests were nine times
# 0.1204 s, ten times 0.1641 s and ten times 0.516 s. The mean rate comes from a tenth of the draws, and the arrivals
# lack the bursts and lulls of random ones. With GUIDELLM__MAX_WORKER_PROCESSES=1 all 29 gaps differ. aisp sets this
# variable where requests arrive at a rate.
#
# The environment takes 1.5 GB with torch's CPU build, which comes from TORCH_INDEX, or with "none" from where pip looks
# anyway.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
cat > server.py <<'END_OF_SERVER'
"""An OpenAI-compatible server that streams one token at once. It writes its port to the file `port`."""
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        models = {"object": "list", "data": [{"id": "stub", "object": "model", "created": 0, "owned_by": "stub"}]}
        self.answer("application/json", json.dumps(models).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "stub"}
        word = {"index": 0, "delta": {"role": "assistant", "content": "word"}, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks = [{**head, "choices": [word]}, {**head, "choices": [end]}, {**head, "choices": [], "usage": usage}]
        lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
        self.answer("text/event-stream", "".join(f"data: {line}\n\n" for line in lines).encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
Path("port.new").write_text(str(server.server_port))
Path("port.new").rename("port")
server.serve_forever()
END_OF_SERVER
cat > gaps.py <<'END_OF_GAPS'
"""Print how many requests were answered, and how many of the gaps between their targeted starts differ."""
import json
import sys
from pathlib import Path

done = json.loads(Path(sys.argv[1]).read_text())["benchmarks"][0]["requests"]["successful"]
starts = sorted(request["info"]["timings"]["targeted_start"] for request in done)
gaps = [round(later - earlier, 4) for earlier, later in zip(starts, starts[1:])]
print(len(starts), len(set(gaps)))
print(*gaps, file=sys.stderr)
END_OF_GAPS
for number in $(seq 100); do echo "{\"prompt\": \"request $number\"}"; done > prompts.jsonl
python3 -m venv env
index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
[ "$index" = none ] && index=
env/bin/pip install -q --disable-pip-version-check ${index:+--extra-index-url "$index"} guidellm==0.8.1 torch==2.13.0+cpu
python3 server.py & server=$!
while [ ! -f port ]; do kill -0 "$server"; sleep 0.1; done
for processes in 10 1; do
  env HF_HUB_OFFLINE=1 "GUIDELLM__MAX_WORKER_PROCESSES=$processes" env/bin/guidellm run --disable-console \
    --backend "kind=openai_http,target=http://127.0.0.1:$(cat port),model=stub,max_tokens=1" \
    --profile kind=poisson,rate=5 --seed kind=static,value=11 --constraint kind=max_requests,count=30 \
    --data "kind=json_file,path=$folder/prompts.jsonl" --output "kind=json,path=$folder/$processes.json" \
    > "$processes.txt" 2>&1 || { cat "$processes.txt"; exit 1; }
  read -r answered different < <(env/bin/python gaps.py "$processes.json")
  echo "$processes process(es): $answered answered, $different different gaps"
  case $processes in
    10) [ "$answered" = 30 ] && [ "$different" -le 8 ] ;;
    1) [ "$answered" = 30 ] && [ "$different" = 29 ] ;;
  esac || { echo "The behaviour has changed." >&2; exit 1; }
done
echo "As described."
