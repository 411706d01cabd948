package layers

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/ucp"
)

// undone is the layer ucp without some of the remedies of the study of UCX (Papadopoulou and others, CCGrid 2017,
// section V).
type undone struct {
	name  string
	parts []func(*Config)
}

// The remedies that a layer lacks.
func resolveAtOp(c *Config)  { c.UCP.Study.KeyResolve = ucp.ResolveAtOp }
func pollIdleTx(c *Config)   { c.UCT.IB.PollIdleTx = true }
func progressIdle(c *Config) { c.UCP.Study.ProgressIdle = true }

var withoutRemedies = []undone{
	{"ucp-resolve", []func(*Config){resolveAtOp}},
	{"ucp-idle-tx", []func(*Config){pollIdleTx}},
	{"ucp-idle-ud", []func(*Config){progressIdle}},
	{"ucp-resolve-idle-tx", []func(*Config){resolveAtOp, pollIdleTx}},
	{"ucp-resolve-idle-ud", []func(*Config){resolveAtOp, progressIdle}},
}

// WithoutRemedies lists the layers that are the layer ucp as UCX 1.0 was: ucp-resolve resolves the remote key in each
// operation, ucp-idle-tx polls an idle completion queue of sends, ucp-idle-ud progresses the idle interface of the
// handshake; others combine two of these. Each is compared with ucp. Set opens these layers; Names does not contain
// them.
func WithoutRemedies() (names []string) {
	for _, u := range withoutRemedies {
		names = append(names, u.name)
	}
	return names
}

// Measurable lists all layers that a run can select, in their order.
func Measurable() []string { return append(Names(), WithoutRemedies()...) }

// openWithoutRemedies adds the openers of WithoutRemedies.
func (c Config) openWithoutRemedies(openers map[string]layer.Opener) {
	for _, u := range withoutRemedies {
		cfg := c
		for _, undo := range u.parts {
			undo(&cfg)
		}
		openers[u.name] = ucplayer.New(cfg.UCP, cfg.Components).Open
	}
}

// Below returns the layer with which the results of name are compared; "" means the previous layer of the run.
func Below(name string) string {
	for _, u := range withoutRemedies {
		if u.name == name {
			return ucplayer.Name
		}
	}
	return ""
}
