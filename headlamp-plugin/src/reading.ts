// Reads the document of an autoscaler from the scaler's Pod that decides it.

import { AutoscalerView, VERSION } from './document';
import { Answer, PORT } from './exchange';
import { leaseName, podOf, sliceOf } from './slices';

/** Where the scaler runs, and what the names of its Leases begin with. */
export interface Place {
  namespace: string;
  leases: string;
}

export const PLACE: Place = { namespace: 'fastpath', leases: 'fastpath-scaler' };

export interface Autoscaler {
  kind: string;
  namespace: string;
  name: string;
}

/** What the reader needs of a cluster; a rejection with the status 404 says that an object does not exist. */
export interface Cluster {
  get(path: string): Promise<any>;
  exchange(forward: string, path: string): Promise<Answer>;
}

/** Why there is no document. `decided` is false where no scaler decides the autoscaler. */
export class Unread extends Error {
  constructor(message: string, readonly decided = true) {
    super(message);
  }
}

/** Return the document of an autoscaler; Unread if there is none. */
export async function read(
  cluster: Cluster,
  place: Place,
  autoscaler: Autoscaler
): Promise<AutoscalerView> {
  const { kind, namespace, name } = autoscaler;
  const pod = await findPod(cluster, place, namespace);
  const forward = `/api/v1/namespaces/${place.namespace}/pods/${pod}/portforward?ports=${PORT}`;
  let answer: Answer;
  try {
    answer = await cluster.exchange(
      forward,
      `/debug/fastpath/autoscalers/${namespace}/${name}?journal=false`
    );
  } catch (error) {
    const needed = 'this needs get and create of pods/portforward there';
    throw new Unread(
      `Port ${PORT} of Pod ${place.namespace}/${pod} cannot be read: ${messageOf(
        error
      )}; ${needed}.`
    );
  }
  const document = decode(answer.body);
  if (answer.status !== 200 || document.kind !== kind) {
    const message =
      answer.status === 200
        ? `The scaler decides a ${document.kind} of this name.`
        : document.message;
    throw new Unread(
      message || `Pod ${pod} answers ${answer.status}.`,
      ![200, 404].includes(answer.status)
    );
  }
  if (document.version !== VERSION) {
    throw new Unread(
      `The scaler shows version ${document.version} of the document; this plugin reads ${VERSION}.`
    );
  }
  return document as AutoscalerView;
}

async function findPod(cluster: Cluster, place: Place, namespace: string): Promise<string> {
  const lease = leaseName(place.leases, sliceOf(namespace));
  const path = `/apis/coordination.k8s.io/v1/namespaces/${place.namespace}/leases/${lease}`;
  try {
    const holder = (await cluster.get(path)).spec?.holderIdentity;
    if (!holder) {
      throw new Unread(
        `Lease ${place.namespace}/${lease} has no holder: no scaler decides this namespace.`
      );
    }
    return podOf(holder);
  } catch (error) {
    if (error instanceof Unread) {
      throw error;
    }
    if ((error as { status?: number }).status === 404) {
      throw new Unread(
        `There is no Lease ${place.namespace}/${lease}: no scaler runs there.`,
        false
      );
    }
    throw new Unread(`Lease ${place.namespace}/${lease} cannot be read: ${messageOf(error)}.`);
  }
}

function decode(body: string): any {
  try {
    return JSON.parse(body) ?? {};
  } catch {
    return {};
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error && error.message ? error.message : String(error);
}
