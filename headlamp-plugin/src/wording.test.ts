import { AutoscalerView, LastDecisionView, MetricView } from './document';
import { clock, figures, ladder, metricRows, visible } from './wording';

const AT = '2026-11-27T14:32:10.250Z';

function view(changes: Partial<AutoscalerView> = {}): AutoscalerView {
  return {
    version: 'v1',
    kind: 'FastPathAutoscaler',
    namespace: 'shop',
    name: 'web',
    time: AT,
    mode: 'Auto',
    writing: false,
    decidedSince: null,
    target: {
      kind: 'Deployment',
      name: 'web',
      error: '',
      replicas: 6,
      statusReplicas: 6,
      ready: 5,
      selector: 'app=web',
      manager: '',
    },
    limits: { min: 2, max: 8, windows: [], forecast: 0, floor: 0 },
    metrics: [],
    next: null,
    history: null,
    ahead: [],
    status: {},
    recommendations: {},
    writers: { pausedUntil: null, pausedBy: '', reversals: [] },
    readyTimes: {},
    last: null,
    journal: [],
    ...changes,
  } as AutoscalerView;
}

const values = (changes: Partial<AutoscalerView>) =>
  Object.fromEntries(figures(view(changes)).map(({ name, value }) => [name, value]));

test('an autoscaler without a decision shows limits and counts only', () => {
  expect(values({})).toEqual({
    Replicas: '5 ready of 6',
    Limits: '2 to 8',
    Mode: 'Auto',
    'Last decision': 'none yet',
  });
});

test('each figure that the document has', () => {
  const target = { ...view().target, ready: null, error: 'no such Deployment', manager: 'argocd' };
  expect(
    values({
      target,
      limits: { min: 3, max: 8, windows: ['sale until 18:00'], forecast: 3, floor: 4 },
      status: { desiredReplicas: 7 },
      next: { replicas: 5, at: AT, released: 'held by stabilization' },
      writers: { pausedUntil: AT, pausedBy: 'argocd', reversals: [AT] },
      last: {
        time: AT,
        error: 'no metric',
        limitedBy: 'limited by maxReplicas',
      } as LastDecisionView,
    })
  ).toEqual({
    Replicas: 'unknown ready of 6, 7 desired',
    Limits: '3 to 8; sale until 18:00',
    Floor: '4, published for the HPA',
    Forecast: 'at least 3',
    'The count': 'limited by maxReplicas',
    'Next change': `5 at ${clock(AT)} if the load stays; until then held by stabilization`,
    Mode: 'Auto',
    'Last decision': clock(AT),
    Error: 'no such Deployment; no metric',
    Suspended: `until ${clock(AT)}, by argocd`,
    'Writes reverted': clock(AT),
    'Count set by': 'argocd',
  });
});

test('metrics with age, and why a value is missing or too old', () => {
  const metric = {
    name: 'rps',
    current: '12',
    target: '10',
    ratio: 1.2,
    age: 0.84,
    overdue: '',
    fault: '',
  } as MetricView;
  expect(
    metricRows([
      metric,
      {
        ...metric,
        current: '<unknown>',
        ratio: null,
        age: null,
        overdue: 'too old',
        fault: 'no series',
      },
    ])
  ).toEqual([
    { name: 'rps', current: '12', target: '10', ratio: '1.20', age: '0.8 s', remark: '' },
    {
      name: 'rps',
      current: '<unknown>',
      target: '10',
      ratio: '',
      age: '',
      remark: 'no series; too old',
    },
  ]);
});

test('the steps of the last decision are text', () => {
  const last = { trace: ['6 pods', 'a\u202eb'] } as LastDecisionView;
  expect(ladder(view({ last }))).toEqual(['6 pods', 'a\\u202eb']);
  expect(ladder(view())).toEqual([]);
});

test.each([
  ['<b> é 漢 🙂', '<b> é 漢 🙂'],
  ['a\nb\u200bc\u2028\u00a0', 'a\\u000ab\\u200bc\\u2028\\u00a0'],
  ['\u{e0041}', '\\udb40\\udc41'],
])('what hides in %j is visible', (text, shown) => {
  expect(visible(text)).toBe(shown);
});

test('an instant is the time of day here, and what is no instant stays', () => {
  const date = new Date(AT);
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()];
  expect(clock(AT)).toBe(parts.map(part => String(part).padStart(2, '0')).join(':'));
  expect(clock('soon')).toBe('soon');
});
