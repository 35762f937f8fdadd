package node

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"carillon/internal/bucket"
	"carillon/internal/tracing"
	"carillon/timer/recurrence"
)

// Outside is what a node gives to other systems by itself.
type Outside struct {
	// The same on all nodes: the one that leads the meta group makes them.
	BackupTo    string `placeholder:"s3://BUCKET/PREFIX" help:"Make backups by a schedule, there; credentials as for carillon ctl backup (none)."`
	BackupEvery string `default:"${backup_every}" placeholder:"CRON" help:"When, as five fields of cron, UTC (${default})."`
	BackupKeep  int    `default:"${backup_keep}" placeholder:"N" help:"How many of them stay, 1–10000 (${default})."`

	// See tracing.Config.
	OTLPEndpoint string   `name:"otlp-endpoint" placeholder:"URL" help:"Report traces to this OpenTelemetry collector, http://host:4318 (OTEL_EXPORTER_OTLP_ENDPOINT, else off)."`
	TraceSample  *float64 `placeholder:"PART" help:"Share of the changes without a trace of their own that are traced, 0–1 (OTEL_TRACES_SAMPLER_ARG, else 0.01)."`

	// LogCounts are the lines that Logger has yet to write, and those that it could not, for the
	// metrics; nil: none.
	LogCounts func() (waiting, lost int64) `kong:"-"`
}

// Defaults of Outside.
const (
	DefaultBackupEvery = "0 * * * *"
	DefaultBackupKeep  = 24
)

func (o Outside) withDefaults() Outside {
	o.BackupEvery = cmp.Or(o.BackupEvery, DefaultBackupEvery)
	o.BackupKeep = cmp.Or(o.BackupKeep, DefaultBackupKeep)
	if o.LogCounts == nil {
		o.LogCounts = func() (waiting, lost int64) { return 0, 0 }
	}
	return o
}

func (o Outside) validate() (errs []error) {
	if o.BackupTo != "" {
		if _, err := bucket.Open(o.BackupTo); err != nil {
			errs = append(errs, fmt.Errorf("backup-to: %w", err))
		}
	}
	nowhere := func(field string) error { return fmt.Errorf("%s: needs --backup-to, as s3://BUCKET/PREFIX", field) }
	if err := recurrence.CheckCron(o.BackupEvery, "UTC"); err != nil {
		errs = append(errs, fmt.Errorf("backup-every: %w", err))
	} else if recurrence.FirstCron(o.BackupEvery, "UTC", 1) == 0 {
		errs = append(errs, fmt.Errorf("backup-every: %q never comes", o.BackupEvery))
	} else if o.BackupTo == "" && o.BackupEvery != DefaultBackupEvery {
		errs = append(errs, nowhere("backup-every"))
	}
	if o.BackupKeep < 1 || o.BackupKeep > 10_000 {
		errs = append(errs, errors.New("backup-keep: is out of 1–10000"))
	} else if o.BackupTo == "" && o.BackupKeep != DefaultBackupKeep {
		errs = append(errs, nowhere("backup-keep"))
	}
	traces := o.traces()
	return append(errs, traces.Validate()...)
}

func (o Outside) traces() tracing.Config {
	return tracing.Config{Endpoint: o.OTLPEndpoint, Sample: o.TraceSample}
}

func (c *Config) tracing() tracing.Config {
	t := c.traces()
	t.Version, t.Node, t.Rand = c.Version, c.Name, rand.Uint64
	return t
}
