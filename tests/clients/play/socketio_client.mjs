// Sessions with Socket.IO's JavaScript client, on node: see sessions.py for arguments and output.
import { Agent } from "node:http";
import { createRequire } from "node:module";

const { io } = createRequire(process.env.NODE_PATH + "/")("socket.io-client");
const [url, sessions, mode, way] = process.argv.slice(2);
const transports = { polling: ["polling"], websocket: ["websocket"], upgrade: ["polling", "websocket"] }[way];
const agent = new Agent({ keepAlive: mode === "keep" });
const seconds = Number(process.env.SESSION_SECONDS ?? "40");

function play(number) {
  return new Promise((resolve) => {
    const socket = io(url, { transports, agent, forceNew: true, reconnection: false });
    const timer = setTimeout(() => end(`no end within ${seconds} s`), seconds * 1000);
    let ended = false;
    function end(error) {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      socket.disconnect();
      resolve(error);
    }
    socket.on("connect_error", (error) => end(`connect_error: ${error.message}`));
    socket.on("disconnect", (reason) => end(`disconnected: ${reason}`));
    socket.on("connect", async () => {
      try {
        if (way === "upgrade") {
          while (socket.io.engine.transport.name !== "websocket") await new Promise((r) => setTimeout(r, 20));
        }
        for (let turn = 1; turn <= 6; turn++) {
          const total = await socket.timeout(30000).emitWithAck("add", number);
          if (total !== number * turn) throw new Error(`${total} for ${number * turn}`);
        }
        end(null);
      } catch (error) {
        end(String(error));
      }
    });
  });
}

// Each session stays open while a worker is killed: how it has ended, after how many seconds, and what it is good for then.
function watch(number, started) {
  return new Promise((resolve) => {
    const socket = io(url, { transports, agent, forceNew: true, reconnectionDelay: 200, randomizationFactor: 0 });
    let began = null;
    let ended = "right";
    let after = 0;
    const finish = (text) => { socket.off("disconnect"); socket.disconnect(); resolve([ended, after, text]); };
    socket.once("disconnect", () => { ended = "disconnected"; after = began ? (Date.now() - began) / 1000 : 0; });
    socket.once("connect", async () => {
      await socket.timeout(30000).emitWithAck("add", number);
      started();
      await killed;
      began = Date.now();
      await new Promise((r) => setTimeout(r, 8000));
      try {
        const total = await socket.timeout(10000).emitWithAck("add", number);
        finish(total === 2 * number ? "right" : total === number ? "connected again, to a new session" : `wrong: ${total}`);
      } catch (error) {
        finish(String(error));
      }
    });
  });
}

let tell;
const killed = new Promise((resolve) => { tell = resolve; });
const all = (make) => Promise.all(Array.from({ length: Number(sessions) }, (_, number) => make(number)));
let results;
if (process.argv.includes("death")) {
  let waiting = Number(sessions);
  const ends = all((number) => watch(number + 1, () => { if (--waiting === 0) console.log("running"); }));
  process.stdin.once("data", () => tell());
  results = await ends;
} else {
  results = await all(play);
}
console.log(JSON.stringify(results));
process.exit(0);
