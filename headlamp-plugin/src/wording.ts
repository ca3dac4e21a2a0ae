// What the section shows of a document, as texts.

import { AutoscalerView, MetricView } from './document';

export interface Figure {
  name: string;
  value: string;
}

/** Return limits and counts, and what holds and changes the count. */
export function figures(view: AutoscalerView): Figure[] {
  const { target, limits, last, next, writers } = view;
  const desired = view.status.desiredReplicas ?? view.status.currentReplicas;
  return [
    { name: 'Replicas', value: replicas(target.ready, target.replicas, desired) },
    { name: 'Limits', value: [`${limits.min} to ${limits.max}`, ...limits.windows].join('; ') },
    { name: 'Floor', value: limits.floor ? `${limits.floor}, published for the HPA` : '' },
    { name: 'Forecast', value: limits.forecast ? `at least ${limits.forecast}` : '' },
    { name: 'The count', value: last?.limitedBy ?? '' },
    {
      name: 'Next change',
      value: next
        ? `${next.replicas} at ${clock(next.at)} if the load stays; until then ${next.released}`
        : '',
    },
    { name: 'Mode', value: view.mode },
    { name: 'Last decision', value: last ? clock(last.time) : 'none yet' },
    { name: 'Error', value: [target.error, last?.error].filter(Boolean).join('; ') },
    {
      name: 'Suspended',
      value: writers.pausedUntil
        ? `until ${clock(writers.pausedUntil)}, by ${writers.pausedBy}`
        : '',
    },
    { name: 'Writes reverted', value: writers.reversals.map(clock).join(', ') },
    { name: 'Count set by', value: target.manager },
  ]
    .filter(figure => figure.value)
    .map(figure => ({ ...figure, value: visible(figure.value) }));
}

export interface MetricRow {
  name: string;
  current: string;
  target: string;
  ratio: string;
  age: string;
  remark: string;
}

export function metricRows(metrics: MetricView[]): MetricRow[] {
  return metrics.map(metric => ({
    name: visible(metric.name),
    current: visible(metric.current),
    target: visible(metric.target),
    ratio: metric.ratio === null ? '' : metric.ratio.toFixed(2),
    age: metric.age === null ? '' : `${metric.age.toFixed(1)} s`,
    remark: visible([metric.fault, metric.overdue].filter(Boolean).join('; ')),
  }));
}

/** Return the steps of the last decision. */
export function ladder(view: AutoscalerView): string[] {
  return (view.last?.trace ?? []).map(visible);
}

/** Return a text in which control characters, overrides of direction and characters without width are escapes. */
export function visible(text: string): string {
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, sign => sign.split('').map(escape).join(''));
}

/** Return the time of day of an instant, here. */
export function clock(instant: string): string {
  const date = new Date(instant);
  return Number.isNaN(date.getTime()) ? instant : date.toTimeString().slice(0, 8);
}

function replicas(ready: number | null, wanted: number | null, desired: unknown): string {
  const parts = [`${ready ?? 'unknown'} ready of ${wanted ?? 'unknown'}`];
  if (typeof desired === 'number' && desired !== wanted) {
    parts.push(`${desired} desired`);
  }
  return parts.join(', ');
}
