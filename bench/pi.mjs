// Times pi: node pi.mjs MODULE TASK FILE [COUNT]; prints one number.
//   open     milliseconds to open FILE and build its context
//   rebuild  milliseconds to build the context again after one append
//   append   appends a second, without durability, to a new FILE
import { pathToFileURL } from "node:url";

const [module, task, file, count] = process.argv.slice(2);
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
    const times = timed(() => {
      for (let n = 0; n < Number(count); n += 1) session.appendMessage(said("user"));
    });
    return (Number(count) / times) * 1000;
  },
};
console.log(tasks[task]());
