package uverbs_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// sysOnly is a kernel that implements only Sys.
type sysOnly struct{ tree fs.FS }

func (k sysOnly) Sys() fs.FS                       { return k.tree }
func (k sysOnly) Open(string) (uverbs.File, error) { return nil, fs.ErrPermission }

func sysfs(files map[string]string) sysOnly {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return sysOnly{tree}
}

func TestList(t *testing.T) {
	list, err := uverbs.List(sysfs(map[string]string{
		"class/infiniband_verbs/abi_version":         "6\n",
		"class/infiniband_verbs/uverbs0/ibdev":       "rxe0\n",
		"class/infiniband_verbs/uverbs0/abi_version": "2\n",
		"class/infiniband/rxe0/parent":               "eth0\n",
		"class/infiniband_verbs/uverbs7/ibdev":       "mlx5_0\n",
		"class/infiniband_verbs/uverbs7/abi_version": "1\n",
		"class/infiniband/mlx5_0/device/modalias":    "pci:v000015B3d00001017sv000015B3sd00000006bc02sc00i00\n",
		"class/infiniband_verbs/uverbs8/ibdev":       "half\n",
		"class/infiniband_verbs/uverbs9/ibdev":       "../x\n",
		"class/infiniband_verbs/uverbsx/ibdev":       "x\n",
		"class/infiniband_verbs/other/ibdev":         "y\n",
		"class/infiniband_verbs/uverbs3/ibdev":       "efa_0\n",
		"class/infiniband_verbs/uverbs3/abi_version": "1\n",
	}))
	require.NoError(t, err)
	assert.Equal(t, []uverbs.Info{
		{Name: "efa_0", Path: "/dev/infiniband/uverbs3", ABI: 1},
		{Name: "mlx5_0", Path: "/dev/infiniband/uverbs7", Driver: uverbs.DriverMLX5, ABI: 1},
		{Name: "rxe0", Path: "/dev/infiniband/uverbs0", Driver: uverbs.DriverRXE, ABI: 2, NetDev: "eth0"},
	}, list)
}

func TestList_NoRDMA(t *testing.T) {
	list, err := uverbs.List(sysfs(nil))
	assert.NoError(t, err)
	assert.Empty(t, list)
}

func TestList_OtherABI(t *testing.T) {
	_, err := uverbs.List(sysfs(map[string]string{"class/infiniband_verbs/abi_version": "7\n"}))
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
}

func TestOpen_NoPermission(t *testing.T) {
	_, err := uverbs.Open(sysfs(nil), uverbs.Info{Name: "rxe0", Path: "/dev/infiniband/uverbs0"}, uverbs.DriverRXE)
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.ErrorContains(t, err, "rxe0")
}

// FuzzList checks that for any content of sysfs, List returns only names that are valid in paths and in "name:port".
func FuzzList(f *testing.F) {
	f.Add("uverbs0", "rxe0\n", "2\n", "eth0", "6\n")
	f.Add("uverbs18446744073709551616", "a/b", "-1", "", "")
	f.Add("uverbs1", "..", "99999999999999999999", "\n", "x")
	f.Fuzz(func(t *testing.T, node, name, abi, parent, class string) {
		if !fs.ValidPath(node) || !fs.ValidPath(name) && name != "" {
			return
		}
		list, err := uverbs.List(sysfs(map[string]string{
			"class/infiniband_verbs/abi_version":              class,
			"class/infiniband_verbs/" + node + "/ibdev":       name,
			"class/infiniband_verbs/" + node + "/abi_version": abi,
			"class/infiniband/" + name + "/parent":            parent,
		}))
		if err != nil {
			return
		}
		for _, d := range list {
			assert.NotContains(t, d.Name, "/")
			assert.NotContains(t, d.Name, ":")
			assert.NotEmpty(t, d.Name)
			assert.Regexp(t, `^/dev/infiniband/uverbs[0-9]+$`, d.Path)
		}
	})
}
