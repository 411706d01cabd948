package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/uct"
)

func TestRestCPUs(t *testing.T) {
	for _, c := range []struct {
		name          string
		allowed, cpus []int
		want          []int
	}{
		{"both are measured", []int{0, 1}, []int{1, 0}, []int{1}},
		{"others are free", []int{0, 1, 2, 5}, []int{1, 0}, []int{2, 5}},
		{"one CPU for both", []int{0, 3}, []int{3, 3}, []int{0}},
		{"one CPU", []int{4}, []int{4, 4}, []int{4}},
		{"target in this process", []int{0, 1}, []int{1}, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, restCPUs(c.allowed, c.cpus)) })
	}
}

// TestJob_ChildTarget: only a child process uses the CPU of the target.
func TestJob_ChildTarget(t *testing.T) {
	for _, c := range []struct {
		name string
		job  job
		want bool
	}{
		{"child", job{plan: bench.Plan{Transport: "tcp", Fabric: "shm"}}, true},
		{"goroutine", job{plan: bench.Plan{Transport: "tcp", Fabric: loopFabric}}, false},
		{"server", job{plan: bench.Plan{Transport: "tcp", Fabric: "shm"}, remote: true}, false},
		{"self", job{plan: bench.Plan{Transport: "self", Fabric: "shm"}, transport: device.Transport{Resource: uct.Resource{Kind: uct.DeviceSelf}}}, false},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, c.job.childTarget()) })
	}
}
