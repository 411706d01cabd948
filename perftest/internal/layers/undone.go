package layers

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/ucp"
)

// undone is the layer ucp without remedies of the study of UCX (Papadopoulou and others, CCGrid 2017, section V).
type undone struct {
	name  string
	parts []func(*Config)
}

// The remedies, each undone.
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

// WithoutRemedies lists the layers that are the layer ucp as UCX 1.0 was: ucp-resolve resolves the remote key at each
// operation, ucp-idle-tx polls an idle completion queue of sends, ucp-idle-ud progresses the idle interface of the
// handshake; and two of these at once. Each is compared with ucp. Set opens them; Names does not have them.
func WithoutRemedies() (names []string) {
	for _, u := range withoutRemedies {
		names = append(names, u.name)
	}
	return names
}

// Measurable lists all layers that a run can name, in their order.
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

// Below names the layer that the results of name are compared with; "" means the one before it in the run.
func Below(name string) string {
	for _, u := range withoutRemedies {
		if u.name == name {
			return ucplayer.Name
		}
	}
	return ""
}
