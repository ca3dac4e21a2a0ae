import { Answer, Connect, exchange } from './exchange';

const text = (value: string) => [...new TextEncoder().encode(value)];
const frame = (channel: number, bytes: number[]) => new Uint8Array([channel, ...bytes]).buffer;
const opening = (channel: number) => frame(channel, [0x0e, 0x28]);

/** A pod that answers a request with frames, and records what it got. */
function pod(answer: ArrayBuffer[], ends = false) {
  const sent: string[] = [];
  const state = { sent, closed: 0 };
  const connect: Connect = (onFrame, onEnd) => {
    setTimeout(() => {
      onFrame(opening(0));
      onFrame(opening(1));
    });
    return {
      send: bytes => {
        sent.push(new TextDecoder().decode(bytes));
        setTimeout(() => {
          answer.forEach(onFrame);
          if (ends) {
            onEnd();
          }
        });
      },
      close: () => {
        state.closed += 1;
      },
    };
  };
  return { state, connect };
}

const OK = 'HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 9\r\n\r\n{"a":"é"}'; // é has two bytes

test('one request is sent, once the port is open', async () => {
  const { state, connect } = pod([
    frame(0, text('HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}')),
  ]);
  expect(await exchange(connect, '/a')).toEqual<Answer>({ status: 404, body: '{}' });
  expect(state.sent).toEqual([
    '\0GET /a HTTP/1.1\r\nHost: 127.0.0.1:10254\r\nConnection: close\r\n\r\n',
  ]);
  expect(state.closed).toBe(1);
});

test('an answer may come in any pieces', async () => {
  const bytes = text(OK.replace('9', '10'));
  const { connect } = pod(bytes.map(byte => frame(0, [byte])));
  expect(await exchange(connect, '/a')).toEqual<Answer>({ status: 200, body: '{"a":"é"}' });
});

test.each([
  ['the connection ended', [frame(0, text('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{'))]],
  ['refused by the pod', [frame(1, text('refused by the pod'))]],
  ['not one of a Fastpath scaler', [frame(0, text('SSH-2.0-OpenSSH\r\n\r\n'))]],
  ['not one of a Fastpath scaler', [frame(0, text('HTTP/1.1 200 OK\r\n\r\n'))]],
  ['has more than', [frame(0, new Array(4 * 1024 * 1024 + 1).fill(0x20))]],
])('%s', async (message, answer) => {
  const { state, connect } = pod(answer, true);
  await expect(exchange(connect, '/a')).rejects.toThrow(message);
  expect(state.closed).toBeGreaterThan(0);
});

test('a pod that does not answer', async () => {
  vi.useFakeTimers();
  const { state, connect } = pod([]);
  const answer = expect(exchange(connect, '/a')).rejects.toThrow('no answer within 10 seconds');
  await vi.advanceTimersByTimeAsync(10_000);
  await answer;
  expect(state.closed).toBe(1);
  vi.useRealTimers();
});
