// Registers the section and the settings with Headlamp.

import {
  ConfigStore,
  DetailsViewSectionProps,
  PluginSettingsDetailsProps,
  registerDetailsViewSection,
  registerPluginSettings,
} from '@kinvolk/headlamp-plugin/lib';
import { NameValueTable } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import TextField from '@mui/material/TextField';
import { useMemo } from 'react';
import { PLACE, Place } from './reading';
import { AutoscalerSection, clusterOf } from './Section';

const NAME = 'fastpath-headlamp';
const KINDS = ['HorizontalPodAutoscaler', 'FastPathAutoscaler'];
const useConfig = new ConfigStore<Partial<Place>>(NAME).useConfig();

function Section({ resource }: DetailsViewSectionProps) {
  return KINDS.includes(resource?.kind) ? <Autoscaler resource={resource} /> : null;
}

function Autoscaler({ resource }: DetailsViewSectionProps) {
  const { namespace, leases } = { ...PLACE, ...useConfig() };
  const { kind, cluster: name } = resource;
  const { namespace: within = '', name: own } = resource.metadata;
  const cluster = useMemo(() => clusterOf(name), [name]);
  const place = useMemo(() => ({ namespace, leases }), [namespace, leases]);
  const autoscaler = useMemo(() => ({ kind, namespace: within, name: own }), [kind, within, own]);
  return (
    <AutoscalerSection
      key={`${name}/${kind}/${within}/${own}`}
      cluster={cluster}
      place={place}
      autoscaler={autoscaler}
      optional={kind === 'HorizontalPodAutoscaler'}
    />
  );
}

function Settings({ data, onDataChange }: PluginSettingsDetailsProps) {
  const place: Place = { ...PLACE, ...data };
  const field = (key: keyof Place, label: string) => (
    <TextField
      size="small"
      value={place[key]}
      inputProps={{ 'aria-label': label }}
      onChange={event => onDataChange?.({ ...data, [key]: event.target.value })}
    />
  );
  return (
    <NameValueTable
      rows={[
        { name: 'Namespace of the scaler', value: field('namespace', 'Namespace of the scaler') },
        {
          name: '--lease-name of the scaler',
          value: field('leases', '--lease-name of the scaler'),
        },
      ]}
    />
  );
}

registerDetailsViewSection(Section);
registerPluginSettings(NAME, Settings, true);
