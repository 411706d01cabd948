package wrap

import "github.com/gucx/gucx/uct"

// queues returns connections with intercepted sends. Released connections are reused.
type queues struct {
	uct.Queuer
	x     Interceptor
	conns []*queueConn
}

// Attach implements uct.QueueSender.
func (q *queues) Attach(number uint32) (uct.QueueConn, error) {
	below, err := q.Queuer.Attach(number)
	if err != nil {
		return nil, err
	}
	c := q.idle()
	c.QueueConn = below
	return c, nil
}

// idle returns a connection that is not in use.
func (q *queues) idle() *queueConn {
	for _, c := range q.conns {
		if c.QueueConn == nil {
			return c
		}
	}
	c := &queueConn{x: q.x}
	q.conns = append(q.conns, c)
	return c
}

type queueConn struct {
	uct.QueueConn // nil: released
	x             Interceptor
}

// SendZcopy implements uct.QueueConn.
func (c *queueConn) SendZcopy(iov []uct.IOV, done *uct.Completion) (bool, error) {
	if err := c.x.Before(uct.QueueZcopy); err != nil {
		return false, err
	}
	n := uct.IOVLen(iov)
	pending, err := c.QueueConn.SendZcopy(iov, done)
	c.x.After(uct.QueueZcopy, n, err)
	return pending, err
}

// Recall implements uct.QueueConn.
func (c *queueConn) Recall(done *uct.Completion) (bool, error) {
	below := c.QueueConn
	c.QueueConn = nil
	pending, err := below.Recall(done)
	if err != nil {
		c.QueueConn = below
	}
	return pending, err
}

// Detach implements uct.QueueConn.
func (c *queueConn) Detach() error {
	err := c.QueueConn.Detach()
	if err == nil {
		c.QueueConn = nil
	}
	return err
}
