package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/layers/uctlayer"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
)

// dataLayouts returns the values of -D, without pairs.
func dataLayouts() []string { return append(layer.Variants(), layer.LayoutNames()...) }

// parseDataLayout parses -D into a plan: a variant of uct, or the layouts of messages of ucp.
func parseDataLayout(text string, p *bench.Plan) (err error) {
	first, _, _ := strings.Cut(text, ",")
	if slices.Contains(layer.LayoutNames(), first) {
		p.Layouts, err = layer.ParseLayouts(text)
		return err
	}
	if p.Variant, err = layer.ParseVariant(text); err != nil {
		return fmt.Errorf("-D %s: there are %s for uct, and for ucp %s", text,
			strings.Join(layer.Variants(), ", "), strings.Join(layer.LayoutNames(), ", "))
	}
	return nil
}

// dataLayout is the request of -D.
type dataLayout struct {
	text   string // empty for none
	layer  string // layer that has it
	has    func(layer.Kind) bool
	noun   string
	others string // behavior of the other layers
}

// dataLayout returns the request of the plan.
func (j *job) dataLayout() dataLayout {
	if j.plan.Layouts != (layer.Layouts{}) {
		return dataLayout{j.plan.Layouts.String(), ucplayer.Name, layer.Kind.Laid, "layouts", "send messages in one piece"}
	}
	return dataLayout{j.plan.Variant.String(), uctlayer.Name, layer.Kind.Varied, "variants", "choose by size"}
}

// checkDataLayout rejects a layout that no test uses, and remarks on tests that do not use it.
func (j *job) checkDataLayout() error {
	d := j.dataLayout()
	if d.text == "" {
		return nil
	}
	if !slices.Contains(j.plan.Layers, d.layer) {
		return fmt.Errorf("-D %s is for the %s layer; the others %s", d.text, d.layer, d.others)
	}
	if len(j.plan.Layers) > 1 {
		j.remark("-D %s is for %s; the other layers %s", d.text, d.layer, d.others)
	}
	var without []string
	for _, t := range j.plan.Tests {
		if !d.has(t.Kind) {
			without = append(without, t.Name)
		}
	}
	switch {
	case len(without) == len(j.plan.Tests):
		return fmt.Errorf("-D: there are no %s of %s", d.noun, strings.Join(without, ", "))
	case len(without) > 0 && !isAll(j.settings.tests):
		j.remark("-D %s has no effect on %s", d.text, strings.Join(without, ", "))
	}
	return nil
}
