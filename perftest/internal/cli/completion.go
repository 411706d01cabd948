package cli

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gucx/gucx"
	"github.com/gucx/gucx/perftest/internal/layers"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/probes/counters"
	"github.com/gucx/gucx/perftest/internal/show/complete"
	"github.com/gucx/gucx/perftest/internal/show/sheet"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/threads"
)

// complete tells the shell the values of flags that bind has bound.
func (s *settings) complete(cmd *cobra.Command) {
	complete.List(cmd, "test", func() []string { return append(bench.TestNames(), "all") })
	complete.Size(cmd, "size", "k", "m", "g")
	complete.List(cmd, "transport", func() []string {
		return installed(s.own, func(t *device.Transport) string { return t.Resource.Transport })
	})
	complete.One(cmd, "device", func() []string { return installed(s.own, func(t *device.Transport) string { return t.Device }) })
	complete.One(cmd, "data-layout", dataLayouts)
	complete.One(cmd, "memory", layer.MemoryNames)
	complete.One(cmd, "wait", waitModes)
	complete.List(cmd, "layers", layers.Measurable)
	complete.One(cmd, "fabric", device.Fabrics)
	complete.One(cmd, "cpus", complete.Values("auto", "off"))
	complete.One(cmd, "output", sheet.Formats)
	complete.Files(cmd, "plot", "svg", "png")
	complete.Files(cmd, "save", "json")
}

// completeLocal does so for settings.bindLocal.
func completeLocal(cmd *cobra.Command) {
	complete.One(cmd, "counters", counters.Choices)
	complete.List(cmd, "thread-mode", threads.ModeNames)
}

// installed are names of the transports that there are, each once; none if they cannot
// be listed.
func installed(own gucx.Own, name func(*device.Transport) string) (names []string) {
	cfg, err := layers.FromEnv(os.Environ(), own)
	if err != nil {
		return nil
	}
	// What can be listed is good enough.
	list, _ := device.Transports(cfg.Components(device.Fabrics()[0]))
	for i := range list {
		names = append(names, name(&list[i]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeSharing does so for the flags that msgrate, endpoints and the applications
// have in common.
func completeSharing(cmd *cobra.Command) {
	complete.One(cmd, "fabric", device.Fabrics)
	complete.One(cmd, "model", modelNames)
	complete.One(cmd, "uar-policy", policyNames)
	complete.One(cmd, "output", sheet.Formats)
	complete.Files(cmd, "plot", "svg", "png")
}

// completeCategories does so for categories.bind.
func completeCategories(cmd *cobra.Command) { complete.List(cmd, "categories", categoryNames) }

// featureChoices are the values of --features.
func featureChoices() []string { return append([]string{"all", "each"}, msgrate.FeatureNames()...) }
