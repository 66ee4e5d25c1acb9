"""Any Gymnasium environment as a problem: `tether.learn`, `tether.Bridge`, and `remote` for those in other packages."""

from tether.gym.remote_env import remote as remote
