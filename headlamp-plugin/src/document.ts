// Written by `python -m scripts.generate.plugin_types` from adapter/model/autoscaling/view.py.

/** The version of the document that this plugin reads. */
export const VERSION = 'v1';

/** A part whose fields the plugin does not read one by one. */
export type Plain = Record<string, unknown>;

/** The scaled object; `error` says why it cannot be read, "" if it can. `manager` set its count last. */
export interface TargetView {
  kind: string;
  name: string;
  error: string;
  replicas: number | null;
  statusReplicas: number | null;
  ready: number | null;
  selector: string;
  manager: string;
}

/** The least and the most replicas now, and what gives them beside the spec. */
export interface LimitsView {
  min: number;
  max: number;
  windows: string[];
  forecast: number;
  floor: number;
}

/** A metric of the spec with its value at the last decision. */
export interface MetricView {
  name: string;
  current: string;
  target: string;
  ratio: number | null;
  age: number | null;
  overdue: string;
  fault: string;
  scrapeFault: string;
}

/** The next change of the count if the load stays: to how many `replicas`, when, and what ends then. */
export interface NextChange {
  replicas: number;
  at: string;
  released: string;
}

/** A change: what was from `at` until the next point; a number that was not known is null. */
export interface HistoryPoint {
  at: string;
  demand: number | null;
  desired: number | null;
  ready: number | null;
  floor: number;
  min: number;
  max: number;
  limitedBy: string;
}

/** The changes of the last hour, oldest first. */
export interface HistoryView {
  resolution: number;
  until: string;
  exact: number;
  points: HistoryPoint[];
}

/** A minimum or maximum of a schedule or a forecast, from now or later on; null for no bound. */
export interface BoundsAhead {
  start: string;
  end: string;
  min: number | null;
  max: number | null;
  source: string;
}

/** Other writers of the count: `paused_by` suspends scaling; `reversals` is when they reverted a write. */
export interface WritersView {
  pausedUntil: string | null;
  pausedBy: string;
  reversals: string[];
}

/** The last decision: its metrics as they were read, its steps as sentences, what limited the count. */
export interface LastDecisionView {
  time: string;
  inputs: Plain[];
  trace: string[];
  error: string;
  limitedBy: string;
  demand: number | null;
}

/** What one process knows of an autoscaler that it decides. */
export interface AutoscalerView {
  version: string;
  kind: string;
  namespace: string;
  name: string;
  time: string;
  mode: string;
  writing: boolean;
  decidedSince: string | null;
  target: TargetView;
  limits: LimitsView;
  metrics: MetricView[];
  next: NextChange | null;
  history: HistoryView | null;
  ahead: BoundsAhead[];
  status: Plain;
  recommendations: Record<string, Plain[]>;
  writers: WritersView;
  readyTimes: Plain;
  last: LastDecisionView | null;
  journal?: Plain[];
  boost?: Plain;
  forecast?: Plain;
}
