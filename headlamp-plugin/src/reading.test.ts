import { Answer } from './exchange';
import { Cluster, PLACE, read, Unread } from './reading';

const AUTOSCALER = { kind: 'FastPathAutoscaler', namespace: 'shop', name: 'web' };
const DOCUMENT = { ...AUTOSCALER, version: 'v1' };

function cluster(holder: unknown, answer: Answer | Error, calls: string[] = []): Cluster {
  return {
    get: async path => {
      calls.push(path);
      if (holder instanceof Error) {
        throw holder;
      }
      return { spec: { holderIdentity: holder } };
    },
    exchange: async (forward, path) => {
      calls.push(forward, path);
      if (answer instanceof Error) {
        throw answer;
      }
      return answer;
    },
  };
}

const answer = (status: number, body: unknown): Answer => ({ status, body: JSON.stringify(body) });
const failure = (status: number) => Object.assign(new Error(`status ${status}`), { status });

test('the pod that holds the slice of the namespace is read', async () => {
  const calls: string[] = [];
  const document = await read(
    cluster('scaler-x_1', answer(200, DOCUMENT), calls),
    PLACE,
    AUTOSCALER
  );
  expect(document).toEqual(DOCUMENT);
  expect(calls).toEqual([
    '/apis/coordination.k8s.io/v1/namespaces/fastpath/leases/fastpath-scaler-slice-09',
    '/api/v1/namespaces/fastpath/pods/scaler-x/portforward?ports=10254',
    '/debug/fastpath/autoscalers/shop/web?journal=false',
  ]);
});

test.each<[string, unknown, Answer | Error, string, boolean]>([
  ['without a Lease', failure(404), answer(200, DOCUMENT), 'There is no Lease fastpath/', false],
  [
    'without the right to the Lease',
    failure(403),
    answer(200, DOCUMENT),
    'cannot be read: status 403',
    true,
  ],
  ['without a holder', '', answer(200, DOCUMENT), 'has no holder', true],
  [
    'without the right to forward',
    'x_1',
    new Error('the connection ended'),
    'pods/portforward',
    true,
  ],
  [
    'unknown to the scaler',
    'x_1',
    answer(404, { message: 'not decided here' }),
    'not decided here',
    false,
  ],
  ['of another kind', 'x_1', answer(200, { ...DOCUMENT, kind: 'Other' }), 'decides a Other', false],
  [
    'at a pod that does not lead',
    'x_1',
    answer(503, { message: 'scaler-y leads' }),
    'scaler-y leads',
    true,
  ],
  [
    'at a pod that answers nonsense',
    'x_1',
    { status: 500, body: '<html>' },
    'Pod x answers 500',
    true,
  ],
  [
    'in a later version',
    'x_1',
    answer(200, { ...DOCUMENT, version: 'v2' }),
    'this plugin reads v1',
    true,
  ],
])('an autoscaler %s', async (_, holder, reply, message, decided) => {
  const error = await read(cluster(holder, reply), PLACE, AUTOSCALER).catch(error => error);
  expect(error).toBeInstanceOf(Unread);
  expect(error.message).toContain(message);
  expect(error.decided).toBe(decided);
});
