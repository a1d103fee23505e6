// A page that was built for offline use may have been served here before, and its service worker would answer for this
// server: this one takes its place, and goes with everything that it kept.
self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => {
  event.waitUntil(caches.keys()
    .then((names) => Promise.all(names.filter((name) => name.startsWith('vramwise-')).map((name) => caches.delete(name))))
    .then(() => self.registration.unregister())
    .then(() => self.clients.matchAll({ type: 'window' }))
    .then((pages) => pages.forEach((page) => page.navigate(page.url))));
});
