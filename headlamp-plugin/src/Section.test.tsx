import { act, render, screen, waitFor } from '@testing-library/react';
import { Answer } from './exchange';
import { Cluster, PLACE } from './reading';
import { AutoscalerSection } from './Section';

vi.mock('@kinvolk/headlamp-plugin/lib', () => ({ ApiProxy: {} }));
vi.mock('@kinvolk/headlamp-plugin/lib/CommonComponents', () => ({
  NameValueTable: ({ rows }: any) =>
    rows.map((row: any) => <p key={row.name}>{`${row.name}: ${row.value}`}</p>),
  SectionBox: ({ title, children }: any) => <section aria-label={title}>{children}</section>,
  SimpleTable: ({ data }: any) =>
    data.map((row: any) => <p key={row.name}>{Object.values(row).join(' ')}</p>),
}));

const HOSTILE = '<img src=x onerror=alert(1)>';
const AUTOSCALER = { kind: 'HorizontalPodAutoscaler', namespace: 'shop', name: 'web' };

function document(count: number) {
  return {
    ...AUTOSCALER,
    version: 'v1',
    mode: 'boost',
    target: { ready: count, replicas: count, error: '', manager: '' },
    limits: { min: 2, max: 8, windows: [], forecast: 0, floor: 0 },
    metrics: [
      { name: HOSTILE, current: '12', target: '10', ratio: 1.2, age: 0.8, overdue: '', fault: '' },
    ],
    next: null,
    status: {},
    writers: { pausedUntil: null, pausedBy: '', reversals: [] },
    last: {
      time: '',
      inputs: [],
      trace: ['2 pods ask for 3'],
      error: '',
      limitedBy: '',
      demand: 3,
    },
  };
}

function show(answer: () => Answer, optional = true) {
  const cluster: Cluster = {
    get: async () => ({ spec: { holderIdentity: 'pod_1' } }),
    exchange: async () => answer(),
  };
  const props = { cluster, place: PLACE, autoscaler: AUTOSCALER, optional };
  return render(<AutoscalerSection {...props} />);
}

const ok = (count: number) => ({ status: 200, body: JSON.stringify(document(count)) });
const unknown = () => ({ status: 404, body: '{"message": "not decided here"}' });

test('the document is shown, and names in it are text', async () => {
  const { container } = show(() => ok(3));
  await screen.findByText('Replicas: 3 ready of 3');
  screen.getByText('Limits: 2 to 8');
  screen.getByText(`${HOSTILE} 12 10 1.20 0.8 s`, { exact: false });
  screen.getByRole('listitem');
  expect(container.querySelector('img')).toBeNull();
});

test('it is read again after five seconds, until the page is left', async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  let count = 3;
  const { unmount } = show(() => ok(count++));
  await screen.findByText('Replicas: 3 ready of 3');
  await act(() => vi.advanceTimersByTimeAsync(5_000));
  await screen.findByText('Replicas: 4 ready of 4');
  unmount();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(count).toBe(5);
  vi.useRealTimers();
});

test('an HPA that Fastpath does not decide has no section, a FastPathAutoscaler says why', async () => {
  const { container } = show(unknown);
  await waitFor(() => expect(container.textContent).toBe(''));
  show(unknown, false);
  expect((await screen.findByRole('status')).textContent).toBe('not decided here');
});
