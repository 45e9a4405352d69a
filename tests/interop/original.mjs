// Lets a test talk to the session manager of pi or of OpenClaw: both have the same methods.
//
//   node original.mjs MODULE
//
// MODULE is the file that exports `SessionManager`. Each line of standard input is a request
// {file, steps: [[method, ...arguments], ...]}: open the transcript, take the steps, and
// answer on one line what they returned and what the session looks like afterwards. A request
// {folder} lists the sessions of a folder instead.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { SessionManager } = await import(pathToFileURL(process.argv[2]).href);

function answer({ file, steps = [] }) {
  const session = SessionManager.open(file);
  const returned = steps.map(([method, ...values]) => session[method](...values) ?? null);
  const labels = {};
  for (const { id } of session.getEntries()) {
    if (session.getLabel(id)) labels[id] = session.getLabel(id);
  }
  return {
    returned,
    labels,
    context: session.buildSessionContext(),
    file: session.getSessionFile(),
    header: session.getHeader(),
    leafId: session.getLeafId(),
    name: session.getSessionName() ?? null,
    path: session.getBranch().map((entry) => entry.id),
  };
}

async function list({ folder }) {
  const sessions = await SessionManager.list("", folder);
  return { sessions: sessions.map(({ allMessagesText, ...about }) => about) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = request.folder ? await list(request) : answer(request);
  } catch (error) {
    reply = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
