// Which Lease names the process that decides the autoscalers of a namespace, as
// adapter/model/autoscaling/slices.py has it.

const COUNT = 64;

// Those of FNV-1a for 64 bits, modulo COUNT: the lowest six bits of the hash depend on no others.
const OFFSET = 0x25;
const PRIME = 0x33;

/** Return the number of the slice that a namespace belongs to. */
export function sliceOf(namespace: string): number {
  const bytes = new TextEncoder().encode(namespace);
  return bytes.reduce((hash, byte) => ((hash ^ byte) * PRIME) % COUNT, OFFSET);
}

/** Return the name of the Lease of a slice. */
export function leaseName(prefix: string, slice: number): string {
  return `${prefix}-slice-${String(slice).padStart(2, '0')}`;
}

/** Return the name of the Pod in the identity of a holder. */
export function podOf(identity: string): string {
  return identity.slice(0, Math.max(identity.lastIndexOf('_'), 0)) || identity;
}
