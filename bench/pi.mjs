// Times pi: node pi.mjs MODULE TASK FILE [COUNT ROUNDS]; prints one number.
//   open     milliseconds to open FILE and build its context
//   rebuild  milliseconds to build the context again after one append
//   append   appends a second, without durability, to a new FILE: the best of so many rounds
import { pathToFileURL } from "node:url";

const [module, task, file, count, rounds] = process.argv.slice(2);
const { SessionManager } = await import(pathToFileURL(module).href);

const said = (role) => ({
  role,
  content: [{ type: "text", text: "harbour signal maple quartz ".repeat(8) }],
  provider: "fake",
  model: "small",
  timestamp: 1,
});

function median(times) {
  return times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
}

function timed(work) {
  const start = performance.now();
  work();
  return performance.now() - start;
}

const tasks = {
  open: () => {
    const work = () => SessionManager.open(file).buildSessionContext();
    return median([1, 2, 3].map(() => timed(work)));
  },
  rebuild: () => {
    const session = SessionManager.open(file);
    session.buildSessionContext();
    const once = () => {
      session.appendMessage(said("user"));
      return timed(() => session.buildSessionContext());
    };
    return median([1, 2, 3].map(once));
  },
  append: () => {
    const session = SessionManager.open(file);
    session.appendMessage(said("assistant"));
    const round = () => {
      for (let n = 0; n < Number(count); n += 1) session.appendMessage(said("user"));
    };
    const times = Array.from({ length: Number(rounds) }, () => timed(round));
    return (Number(count) / Math.min(...times)) * 1000;
  },
};
console.log(tasks[task]());
