package result

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMachine_String(t *testing.T) {
	m := Machine{CPU: "Some CPU", Cores: 2, Kernel: "6.1", Arch: "amd64", Go: "go1.26"}
	assert.Equal(t, "Some CPU, 2 cores, Linux 6.1, go1.26 amd64", m.String())
	m.Cores = 1
	assert.Contains(t, m.String(), ", 1 core, ")
}
