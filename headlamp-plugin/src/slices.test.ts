import { leaseName, podOf, sliceOf } from './slices';
import vectors from './slices.vectors.json';

test.each(Object.entries(vectors))('namespace %s belongs to slice %i', (namespace, slice) => {
  expect(sliceOf(namespace)).toBe(slice);
});

test('a Lease has two digits', () => {
  expect(leaseName('fastpath-scaler', 7)).toBe('fastpath-scaler-slice-07');
});

test.each([
  ['fastpath-scaler-abc_6f1c', 'fastpath-scaler-abc'],
  ['a_b_c', 'a_b'],
  ['alone', 'alone'],
  ['_x', '_x'],
])('the Pod in identity %s', (identity, pod) => {
  expect(podOf(identity)).toBe(pod);
});
