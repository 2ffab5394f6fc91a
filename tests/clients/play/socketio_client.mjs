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

const results = await Promise.all(Array.from({ length: Number(sessions) }, (_, number) => play(number)));
console.log(JSON.stringify(results));
process.exit(0);
