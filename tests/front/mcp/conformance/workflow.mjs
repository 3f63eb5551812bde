// The whole workflow with the official TypeScript client: node workflow.mjs MODULES ERA stdio|URL [COMMAND ARGS...]
// The token for a URL is the variable WORKFLOW_TOKEN. Prints what it saw as JSON.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, era, place, command, ...args] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/here.js`));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const transport =
  place === 'stdio'
    ? new StdioClientTransport({ command, args, env: process.env })
    : new StreamableHTTPClientTransport(new URL(place), {
        requestInit: { headers: { Authorization: `Bearer ${process.env.WORKFLOW_TOKEN}` } },
      });
const client = new Client({ name: 'workflow', version: '1' }, { versionNegotiation: { mode: era } });
await client.connect(transport);

async function call(name, given = {}) {
  const result = await client.callTool({ name, arguments: given }, { timeout: 58_000 });
  if (result.isError) throw new Error(`${name}: ${result.content[0].text}`);
  if (JSON.stringify(JSON.parse(result.content[0].text)) !== JSON.stringify(result.structuredContent))
    throw new Error(`${name}: text and structured content differ`);
  return result.structuredContent;
}

const { tools } = await client.listTools();
const triage = await call('aisp_triage');
const targets = await call('aisp_benchmark_targets', { filter: 'ch07:row_sum' });
const variant = targets.result.targets[0].variants.at(-1);
let answer = await call('aisp_run_benchmarks', { targets: [variant], preset: 'quick', wait_s: 0 });
let waits = 0;
while (answer.status === 'queued' || answer.status === 'running') {
  const { job_id } = answer.job;
  const waited = await call('aisp_job_wait', { job_ids: [job_id], timeout_s: 45 });
  answer = waited.result.answer ?? { status: waited.result.jobs[0].state, job: { job_id } };
  waits += 1;
}
const { run_id } = answer.result;
const report = await call('aisp_benchmark_report', { run_id, format: 'markdown' });
const job = JSON.parse((await client.readResource({ uri: `aisp://jobs/${run_id}` })).contents[0].text);
const file = job.artifacts.find(({ name }) => name === 'report.md');
const page = (await client.readResource({ uri: file.uri })).contents[0].text;
const prompt = await client.getPrompt({ name: 'audit_speedup', arguments: { target: variant, candidate: 'x.py' } });
const completed = await client.complete({
  ref: { type: 'ref/prompt', name: 'optimise_kernel' },
  argument: { name: 'target', value: 'ch07' },
});

console.log(
  JSON.stringify({
    version: client.getNegotiatedProtocolVersion?.() ?? null,
    tools: tools.map(({ name }) => name),
    triage: triage.result.summary,
    variant,
    waits,
    verdicts: answer.result.rulings.map(({ target, verdict }) => ({ target, verdict })),
    report: report.result.files[0].path,
    page,
    prompt: prompt.messages[0].content.text,
    completed: completed.completion.values,
  }),
);
await client.close();
