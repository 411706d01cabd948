package connectx

import (
	"os"

	"github.com/gucx/gucx/internal/mlx5/adapter"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Devices lists the devices of the driver mlx5, by name; none where the kernel has no RDMA. The environment
// variables of libmlx5 tune their queues. An error for a reply of the kernel that cannot be used wraps
// ucs.ErrInternal.
func Devices() ([]*verbs.Device, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return adapter.Devices(uverbs.System(), queues)
}
