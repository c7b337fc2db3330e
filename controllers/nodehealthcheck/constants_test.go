package nodehealthcheck

import "time"

// What the docs promise, and package nodes decides by.
const (
	nodeAway     = 10 * time.Minute
	remake       = time.Minute
	skew         = 30 * time.Second
	restartSlack = 5 * time.Second
)
