// One GET over a forwarded port of a Pod. The scaler shows its documents on its loopback address only, so that the
// right to forward ports of its Pods is the right to read them; no proxy of the API server reaches that address.
//
// The API server forwards a port over a WebSocket: the first byte of a frame is its channel, 0 for data and 1 for
// errors, and the first frame of a channel has the number of the port.

export const PORT = 10254;
/** The subprotocol of the frames. */
export const PROTOCOL = 'v4.channel.k8s.io';

const SECONDS = 10;
const MOST_BYTES = 4 * 1024 * 1024;
const DATA = 0;
const PORT_BYTES = 2;

export interface Answer {
  status: number;
  body: string;
}

export interface Connection {
  send(frame: Uint8Array): void;
  close(): void;
}

/** Opens a connection; calls `onFrame` for each frame, and `onEnd` when it ends or cannot be opened. */
export type Connect = (onFrame: (frame: ArrayBuffer) => void, onEnd: () => void) => Connection;

/** Send a GET and return the answer. */
export function exchange(connect: Connect, path: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let received = new Uint8Array(0);
    const opened = new Set<number>();
    const connection = connect(onFrame, () => end(() => reject(new Error('the connection ended'))));
    const timer = setTimeout(
      () => end(() => reject(new Error(`no answer within ${SECONDS} seconds`))),
      SECONDS * 1000
    );

    function end(settle: () => void) {
      clearTimeout(timer);
      settle();
      connection.close();
    }

    function onFrame(buffer: ArrayBuffer) {
      const channel = new Uint8Array(buffer)[0];
      let content = new Uint8Array(buffer, 1);
      if (!opened.has(channel)) {
        opened.add(channel);
        content = content.subarray(PORT_BYTES);
        if (channel === DATA) {
          connection.send(request(path));
        }
      }
      if (channel !== DATA) {
        if (content.length) {
          end(() => reject(new Error(new TextDecoder().decode(content))));
        }
        return;
      }
      received = concatenate(received, content);
      try {
        const answer = parse(received);
        if (answer) {
          end(() => resolve(answer));
        }
      } catch (error) {
        end(() => reject(error));
      }
    }
  });
}

/** Return the frame of a request. */
export function request(path: string): Uint8Array {
  const head = `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${PORT}\r\nConnection: close\r\n\r\n`;
  return concatenate(new Uint8Array([DATA]), new TextEncoder().encode(head));
}

/** Return the answer that the bytes have, null while it is incomplete. */
export function parse(bytes: Uint8Array): Answer | null {
  const text = new TextDecoder('latin1').decode(bytes); // one character for each byte
  const end = text.indexOf('\r\n\r\n');
  if (bytes.length > MOST_BYTES) {
    throw new Error(`the answer has more than ${MOST_BYTES} bytes`);
  }
  if (end < 0) {
    return null;
  }
  const [first, ...lines] = text.slice(0, end).split('\r\n');
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(first)?.[1];
  const length = lines.map(line => /^content-length: *(\d+)$/i.exec(line)?.[1]).find(Boolean);
  if (!status || !length) {
    throw new Error('the answer is not one of a Fastpath scaler');
  }
  const body = bytes.subarray(end + 4);
  if (body.length < Number(length)) {
    return null;
  }
  return {
    status: Number(status),
    body: new TextDecoder().decode(body.subarray(0, Number(length))),
  };
}

function concatenate(first: Uint8Array, second: Uint8Array): Uint8Array {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}
