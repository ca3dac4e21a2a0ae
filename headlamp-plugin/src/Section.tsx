// The section on the page of an autoscaler. It reads the document again while the page is visible.

import { ApiProxy } from '@kinvolk/headlamp-plugin/lib';
import {
  NameValueTable,
  SectionBox,
  SimpleTable,
} from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { useEffect, useState } from 'react';
import { AutoscalerView } from './document';
import { exchange, PROTOCOL } from './exchange';
import { Autoscaler, Cluster, Place, read, Unread } from './reading';
import { figures, ladder, metricRows, visible } from './wording';

const PERIOD_SECONDS = 5;

/** Return the cluster behind Headlamp's proxy. */
export function clusterOf(name: string): Cluster {
  return {
    get: path => ApiProxy.clusterRequest(path, { cluster: name }),
    exchange: (forward, path) =>
      exchange((onFrame, onEnd) => {
        const { cancel, getSocket } = ApiProxy.stream(forward, onFrame, {
          isJson: false,
          additionalProtocols: [PROTOCOL],
          cluster: name,
          reconnectOnFailure: false,
          failCb: onEnd,
        });
        return { send: frame => getSocket()?.send(frame), close: cancel };
      }, path),
  };
}

export interface AutoscalerSectionProps {
  cluster: Cluster;
  place: Place;
  autoscaler: Autoscaler;
  /** Whether the autoscaler works without a scaler of Fastpath. */
  optional: boolean;
}

export function AutoscalerSection({
  cluster,
  place,
  autoscaler,
  optional,
}: AutoscalerSectionProps) {
  const [view, setView] = useState<AutoscalerView | null>(null);
  const [fault, setFault] = useState<Unread | null>(null);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let ended = false;

    async function follow() {
      if (!document.hidden) {
        try {
          const newest = await read(cluster, place, autoscaler);
          if (!ended) {
            setView(newest);
            setFault(null);
          }
        } catch (error) {
          if (!ended) {
            setFault(error instanceof Unread ? error : new Unread(String(error)));
          }
        }
      }
      if (!ended) {
        timer = setTimeout(follow, PERIOD_SECONDS * 1000);
      }
    }

    follow();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [cluster, place, autoscaler]);

  if (fault && !fault.decided && optional) {
    return null;
  }
  return (
    <SectionBox title="Fastpath">
      {fault && <p role="status">{visible(fault.message)}</p>}
      {view && <Document view={view} />}
    </SectionBox>
  );
}

function Document({ view }: { view: AutoscalerView }) {
  return (
    <>
      <NameValueTable rows={figures(view)} />
      <h3>Metrics</h3>
      <SimpleTable
        columns={[
          { label: 'Metric', datum: 'name' },
          { label: 'Value', datum: 'current' },
          { label: 'Target', datum: 'target' },
          { label: 'Ratio', datum: 'ratio' },
          { label: 'Age', datum: 'age' },
          { label: 'Remark', datum: 'remark' },
        ]}
        data={metricRows(view.metrics)}
        emptyMessage="No metric was read yet."
      />
      <h3>Last decision, step by step</h3>
      <ol>
        {ladder(view).map((step, place) => (
          <li key={place}>{step}</li>
        ))}
      </ol>
    </>
  );
}
