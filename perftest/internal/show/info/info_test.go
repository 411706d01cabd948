package info

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// lockedMD has two transports, and opening either fails.
type lockedMD struct{ uct.MD }

func (lockedMD) Attr() *uct.MDAttr { return &uct.MDAttr{Name: "dev0"} }
func (lockedMD) Close() error      { return nil }

func (lockedMD) Resources() ([]uct.Resource, error) {
	return []uct.Resource{{Transport: "rc", Device: "dev0:1"}, {Transport: "ud", Device: "dev0:1"}}, nil
}

func (lockedMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	return nil, errors.New(p.Transport + ": this process may lock 64 KiB")
}

type lockedComponent struct{ uct.Component }

func (lockedComponent) OpenMD(string) (uct.MD, error) { return lockedMD{}, nil }

// A transport that does not open is listed with the reason, and the next one follows.
func TestDomain_TransportNotUsable(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out}
	require.NoError(t, p.domain(lockedComponent{}, "dev0", ""))
	assert.Contains(t, out.String(), "Transport: rc")
	assert.Contains(t, out.String(), "#   not usable: rc: this process may lock 64 KiB")
	assert.Contains(t, out.String(), "#   not usable: ud: this process may lock 64 KiB")
}
